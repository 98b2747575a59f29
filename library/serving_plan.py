"""Compute what has to be started, on which cards and cores, to serve models on a Gaudi node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: serving_plan
short_description: Compute what has to be started to serve models on a Gaudi node
description:
  - Plans a list of requests on the controller. Cards and ports of an earlier instance count as taken for later
    requests; a request without an instance is a question and takes nothing.
  - Has M(node_report) read the node's cards, the reservations, what the last starts of its instances logged, and the
    headers of the weights; changes nothing. With O(topology) or O(topology_file) the node is not asked, so that a plan
    can be made for a machine that is not there.
  - A request that cannot be granted is refused in one sentence that names the option, the value and the limit.
  - Where options differ, the request's own value counts, then that of the model's file in C(catalog/models), then that
    of the release's file in C(catalog/releases).
  - This is an action; there is no module of this name.
version_added: "0.1.0"
options:
  requests:
    description:
      - Requests, each a mapping of options. O(requests[].model) or O(requests[].weights) is needed. Values are checked
        by the planner and refused one request at a time, in words.
      - JSON or YAML text is taken as well, as C(-e plan_requests=[...]) on the command line gives it.
    type: list
    elements: dict
    required: true
    suboptions:
      instance:
        description:
          - Name of the instance. At most 48 of a-z, 0-9 and C(-), which is neither first nor last.
          - Needed to serve. Without it the request is a question. Cards the instance has reserved stay its own.
        type: str
      model:
        description: Name of a file in C(catalog/models), without C(.yml).
        type: str
      weights:
        description: Absolute path on the node, or a hub id such as V(Qwen/Qwen3-8B), served as it is.
        type: str
      model_config:
        description: Content of the model's C(config.json), or its text, for O(requests[].weights). Without it, rules
          that need the model's type go by its name, with a warning; of a part of it, each missing key that a
          rule needs is named.
        type: dict
      served_model_name:
        description:
          - Name clients ask for, and the one that answers show. Where not given, the catalogue's name, or the path.
          - The path of the weights is a name as well, since the vendor's manuals ask by it.
        type: str
      share_card_with:
        description: Further embedding or rerank models of the catalogue, served by the same server on the same card.
        type: list
        elements: str
      tensor_parallel_size:
        description: Number of cards, 1 to 16, or V(auto) for the fewest of 1, 2, 4 and 8 that hold the model and one
          longest request.
        type: raw
      modules:
        description: V(auto), V(all), or a list of module ids, which is obeyed or refused, never changed.
        type: raw
      dtype:
        description: How it is computed. Left out, it follows weights that are stored quantised (FP8, AWQ, GPTQ).
        type: str
        choices: [auto, bfloat16, float16, float32, fp8, awq, gptq]
      quantization_config:
        description: Absolute path of an INC configuration on the node; means FP8.
        type: str
      kv_cache_dtype:
        description: How the KV cache is stored. FP8 without O(requests[].quantization_config) has no measured scales,
          which is a warning.
        type: str
        choices: [auto, fp8, fp8_inc, fp8_e4m3, fp8_e5m2]
      max_model_len:
        description: Longest request in tokens, input and output together.
        type: int
      input_range:
        description: Shortest and longest input in tokens, such as V([800, 4096]).
        type: list
        elements: int
      output_range:
        description: Shortest and longest output in tokens, such as V([800, 2048]).
        type: list
        elements: int
      max_num_seqs:
        description: Most sequences at once, 1 to 4096.
        type: int
      max_num_batched_tokens:
        description: Most tokens in a prefill batch.
        type: int
      max_num_prefill_seqs:
        description: Most sequences in a prefill batch, or V(auto) for as many as the token budget holds.
        type: raw
      max_seq_len_to_capture:
        description: Longest sequence captured in a graph, from 2048.
        type: int
      gpu_memory_utilization:
        description: Share of the memory that is free after loading, 0.05 to 1.0.
        type: float
      padding_limit:
        description: Largest share of padding in a bucket, 0.0 (every step) to 0.5 (doubling). Not before release 1.22.
        type: float
      scheduler_steps:
        description: Steps of the scheduler between two updates, 1 to 64.
        type: int
      partial_warmup:
        description: What is warmed up instead of everything. Release 1.21 only.
        type: dict
        suboptions:
          max_num_seqs:
            description: Most sequences at once that are common.
            type: int
            required: true
          max_seq_len:
            description: Longest input that is common, in tokens; from the shortest input of O(requests[].input_range).
            type: int
            required: true
      skip_warmup:
        description: Start without a warm-up.
        type: bool
      profile:
        description: Write a trace of the high-level profiler.
        type: bool
      zero_padding:
        description: Fill padding with zeros.
        type: bool
      fused_sdpa:
        description: Use the fused attention kernel for prompts.
        type: bool
      fp32_softmax:
        description: Compute softmax in float32; by the model's type and size where not given.
        type: bool
      enforce_eager:
        description: Run without graphs; no memory is kept for them.
        type: bool
      lazy_mode:
        description: PyTorch lazy mode (C(PT_HPU_LAZY_MODE)).
        type: bool
      block_size:
        description: Tokens of a KV cache block, 128 as the vendor recommends. The release file lists what its server
          takes.
        type: int
      graph_reserved_mem:
        description: Share of the usable memory kept for graphs, 0.0 to 1.0.
        type: float
      graph_prompt_ratio:
        description: Share of the graph memory for prompts, 0.0 to 1.0. Releases 1.18 and 1.21, and those for DeepSeek.
        type: float
      graph_prompt_strategy:
        description: Order in which graphs of prompts are captured. Releases 1.18 and 1.21, and those for DeepSeek.
        type: str
        choices: [min_tokens, max_bs]
      graph_decode_strategy:
        description: Order in which graphs of decoding are captured. Releases 1.18 and 1.21, and those for DeepSeek.
        type: str
        choices: [min_tokens, max_bs]
      exponential_bucketing:
        description: Space buckets exponentially, by O(requests[].max_num_seqs), O(requests[].max_num_prefill_seqs),
          O(requests[].max_model_len) and the KV cache; the bucket variables are not read then. Releases 1.21 and 1.22.
        type: bool
      log_step_graph_compilation:
        description: Log steps that compile a graph.
        type: bool
      log_step_graph_compilation_all:
        description: Log compilation of every step.
        type: bool
      log_step_cpu_fallbacks:
        description: Log steps that fall back to the CPU.
        type: bool
      log_step_cpu_fallbacks_all:
        description: Log fallbacks of every step.
        type: bool
      metrics_gc_details:
        description: Detailed metrics of the graph compiler.
        type: bool
      limit_mm_per_prompt:
        description: Pictures, films and sounds that a prompt may have (C(image), C(video), C(audio)), each a number.
          Left out, those of the model's file. It is written as the release's server takes it.
        type: dict
      mm_processor_kwargs:
        description: What the model's processor of pictures, films and sounds is told, such as C(max_pixels). Left out,
          what the model's file has.
        type: dict
      data_parallel_size:
        description: Copies of the model behind one address, each on O(requests[].tensor_parallel_size) cards of the
          node. This and the following up to O(requests[].contiguous_pa) are of releases 1.23 and later, which serve
          with vLLM itself and its plugin.
        type: int
      num_gpu_blocks_override:
        description: Blocks of the KV cache, whatever the memory holds.
        type: int
      quantization:
        description: Quantisation method of vLLM; left out, it follows the weights.
        type: str
      enable_expert_parallel:
        description: Spread the experts of a mixture over the cards.
        type: bool
      enable_prefix_caching:
        description: Keep the KV cache of common beginnings. On by default where the model can; not with
          O(requests[].contiguous_pa).
        type: bool
      enable_chunked_prefill:
        description: Prefill long prompts in pieces. On by default.
        type: bool
      enable_lora:
        description: Serve LoRA adapters.
        type: bool
      max_loras:
        description: Adapters in one batch.
        type: int
      max_lora_rank:
        description: Largest rank of an adapter.
        type: int
      lora_modules:
        description: Adapters by the name clients ask for, each an absolute path on the node. They turn
          O(requests[].enable_lora) on.
        type: dict
      speculative_config:
        description: Speculative decoding, in vLLM's words (C(method), C(num_speculative_tokens), C(model)). A C(model)
          that is an absolute path of the node is mounted.
        type: dict
      structured_outputs_config:
        description: Structured outputs, in vLLM's words.
        type: dict
      async_scheduling:
        description: Schedule the next step while one runs.
        type: bool
      reasoning_parser:
        description: Parser of a model that thinks; left out, the model's own.
        type: str
      tool_call_parser:
        description: Parser of tool calls, which turns automatic tool choice on.
        type: str
      bucketing_strategy:
        description: How buckets are spaced. Release 1.23 has no padding-aware strategy, later ones no unified one.
        type: str
        choices: [exponential, linear, padding-aware, file, unified]
      bucketing_file:
        description: Absolute path on the node of a file of buckets, which wins over every strategy.
        type: str
      contiguous_pa:
        description: Contiguous paged attention, which turns prefix caching off.
        type: bool
      recipe_cache:
        description: Absolute path of the directory of compiled recipes, or a mapping of C(directory) and C(size) (MiB);
          V(false) for none.
        type: raw
      trust_remote_code:
        description: Whether the server may run code that comes with the weights. It needs to where their
          C(config.json) has C(auto_map) and the release has no class of its own for the model. There the plan is
          refused until this is said, unless the catalogue's file of the model says V(true).
        type: bool
      extra_args:
        description: Further arguments of the server, one list entry an argument. No shell reads them.
        type: list
        elements: str
      extra_environment:
        description: Further variables by name; they win over computed ones.
        type: dict
      host:
        description: Address the server listens on, V(127.0.0.1) where not given. Others reach it elsewhere, which needs
          keys (O(requests[].guarded)) or a reason (O(requests[].open_without_keys)).
        type: str
      port:
        description: Port the server listens on, 1 to 65535.
        type: int
      ipc:
        description:
          - Whose shared memory the container has. V(private) is 16 GiB of its own; V(host) is the node's, which all
            instances and programs of the node share, and which every manual asks for.
          - Where it is not given, V(host) for cards that talk over host NICs and V(private) for all others.
        type: str
        choices: [private, host]
      guarded:
        description:
          - Whether everybody has to bring an API key, on every path. True for an instance that C(vllm_service_api_keys)
            of the host has keys for, else false.
          - Needed for an instance whose keys C(playbooks/keys.yml) makes.
        type: bool
      open_without_keys:
        description: Why others than the node itself may reach a server that asks for no keys, in words. Needed where
          O(requests[].host) is not on loopback and the instance is not guarded; shown with its state.
        type: str
      node_address:
        description: Address of the node that its processes talk over.
        type: str
      network_interface:
        description: Interface of that address, one that the node has.
        type: str
  release:
    description: Name of a file in C(catalog/releases), without C(.yml), as text; V("1.22"), not V(1.22).
    type: str
    required: true
  weights_root:
    description: Directory of the models on the node. C(/data/models) where not given.
    type: str
  image_registry:
    description: Registry to take the image from instead of the release's own.
    type: str
  image:
    description:
      - What the site says of its images, by the names of the options of the role P(gaudi_serving.serving_image#role)
        without C(serving_image_). Without C(ref) and C(build) the image is that of the registry.
      - With C(build) the tag of RV(plans[].image) is a hash of what the image is built from.
    type: dict
    default: {}
  host_nics:
    description: Whether host NICs that join the node's cards were verified. Where the cards' own links join groups of
      them only (C(groups) in C(catalog/cards.yml)), an instance has cards of one group otherwise.
    type: bool
    default: false
  foresee:
    description: Whether a node without a driver is planned for with the cards on its PCI bus. RV(topology) then has
      C(foreseen), and module ids in the order of addresses, which is not what a driver will say.
    type: bool
    default: false
  topology:
    description:
      - Topology of the node, as M(gaudi_topology_info) returns it, or what hl-smi printed there, as in
        O(topology_file). Read from the node where neither is given; reservations and weights are then read as well.
    type: dict
  topology_file:
    description:
      - YAML or JSON file on the controller with a topology, for a machine that is not there. Not together with
        O(topology).
      - It holds the result of M(gaudi_topology_info), its C(topology) alone, or what hl-smi printed, by the keys
        C(hl_smi_name_csv) (C(hl-smi -Q name -f csv)), C(hl_smi_index_module_csv) (C(hl-smi -Q index,module_id -f csv))
        and C(hl_smi_topo) (C(hl-smi topo -c -N)); C(modules_in_use), a list of module ids, and C(addresses), pairs of
        interface and address, may be left out. C(docs/examples/topologies) has some of them.
      - A file that a request names as C(bucketing_file) is read under its path on the controller then.
    type: str
  on_refusal:
    description: Whether a refused request ends the task (V(fail)), or is reported beside the plans of the others.
    type: str
    choices: [fail, report]
    default: fail
  page:
    description: Also return the plans as a page of text for people.
    type: bool
    default: false
extends_documentation_fragment: attributes.reads
requirements:
  - root (C(become)), to see who uses which card; not with O(topology) or O(topology_file)
seealso:
  - module: node_report
  - module: gaudi_topology_info
  - module: card_reservation
author: The gaudi-serving authors
"""

EXAMPLES = r"""
- name: Plan the instances of a node
  serving_plan:
    requests:
      - {instance: qwen3-8b, model: qwen3-8b, port: 30001}
      - {instance: my-model, weights: /data/models/My-7B, tensor_parallel_size: 1, port: 30002}
    release: "1.22"
  become: true
  register: serving

- name: Plan for a machine that is not there, refusals included
  serving_plan:
    requests: [{model: qwq-32b}, {model: qwen2-72b-instruct, max_num_seqs: 64}]
    release: "1.22"
    topology_file: docs/examples/topologies/hl-225-two-sockets.yml
    on_refusal: report
    page: true
  delegate_to: localhost
  register: serving

- name: Show the page
  ansible.builtin.debug:
    msg: "{{ serving.page }}"
"""

RETURN = r"""
plans:
  description:
    - One plan for each request, in order.
    - For a refused request (with O(on_refusal=report)) only RV(plans[].instance), RV(plans[].refused) and
      RV(plans[].refused_id).
  returned: always
  type: list
  elements: dict
  contains:
    instance:
      description: Name of the instance; null for a question.
      type: str
      sample: qwen3-8b
    refused:
      description: Why there is no plan, in a sentence that names the option, the value and the limit.
      returned: for a refused request, which has no other keys but the instance and the id
      type: str
      sample: "Request 'qwen3-8b': tensor_parallel_size is 3, which does not divide the 32 attention heads of ..."
    refused_id:
      description: What is wrong, in one word that stays the same; for programs, which must not read the sentence.
      returned: for a refused request
      type: str
      sample: heads_not_divisible
    model:
      description: Name of the model's catalogue file; null for weights served as they are.
      type: str
      sample: qwen3-8b
    served_model_name:
      description: Name clients ask for, and the one that answers show; the path of the weights is answered to as well.
      type: str
      sample: qwen3-8b
    task:
      description: What the model is for, V(generate), V(complete), V(embed) or V(score).
      type: str
      sample: generate
    ask:
      description:
        - What is known beforehand of the answers it has to give once it serves, for M(vllm_service_verify). It is not
          part of the plan on the node.
        - V(dimensions) is how many numbers an embedding of it has, by the hidden_size of its config.json; V(check) a
          question with words of which its answer has one, by its file in C(catalog/models); V(media) how many pictures,
          films and sounds a prompt may have.
      type: dict
      sample:
        check: {question: "What is the capital of France? Answer in one word.", contains: [Paris]}
    release:
      description: The Intel Gaudi software release.
      type: str
      sample: "1.22"
    image:
      description: The serving image.
      type: str
      sample: vault.habana.ai/gaudi-docker/1.22.2/ubuntu22.04/habanalabs/pytorch-installer-2.7.1:1.22.2-32
    listen:
      description: Address and port of the server; C(closed_ports) are the first and the last port of its own processes,
        which others are kept out of.
      type: dict
      sample: {host: 127.0.0.1, port: 30001, closed_ports: [28000, 28015]}
    guarded:
      description: Whether everybody has to bring an API key. The guard, its mounts and its argument are in the plan.
      type: bool
      sample: false
    paths:
      description: Where the release's server answers.
      type: list
      elements: str
      sample: [/health, /v1/chat/completions, /v1/models]
    modules:
      description: The cards, by module id, with the serial numbers that must be found there at every start.
      type: list
      elements: dict
      sample: [{module_id: 0, serial: AM50016138}, {module_id: 1, serial: AM50016139}]
    cpu_binding:
      description: The numactl vector before the command; empty for no binding.
      type: list
      elements: str
      sample: [numactl, -C, "0-9,10-19", -p, "0"]
    arguments:
      description: The command, an argument vector that no shell reads.
      type: list
      elements: str
      sample: [python3, -m, vllm.entrypoints.openai.api_server, --host, 127.0.0.1, --port, "30001"]
    environment:
      description: Variables of the server, by name.
      type: dict
      sample: {HABANA_VISIBLE_MODULES: "0,1", PT_HPU_LAZY_MODE: "1", VLLM_DECODE_BS_BUCKET_MAX: "32"}
    unpickles:
      description: That the release's server runs what is in pickled tensors. Plans of other releases do not have it.
      type: bool
      sample: true
    execution_mode:
      description: What lazy mode and eager mode together make of it.
      type: str
      sample: HPU graphs
    container:
      description: Runtime, capabilities, limits, network, mounts, the places in memory that may be written to, the
        variables that only the container needs, and what its supervisor adds at the start (C(at_start)).
      type: dict
      sample:
        name: vllm-qwen3-8b
        runtime: habana
        capabilities: [SYS_NICE]
        tmpfs: [{path: /tmp, size_mib: 8192, mode: "1777"}]
        mounts: [{source: /data/models/Qwen3-8B, target: /data/models/Qwen3-8B, read_only: true}]
    buckets:
      description:
        - The shapes that requests are padded to, as the release's own bucketing makes them, and the number of graphs
          that the warm-up captures. V(warmup) says what keeps it from capturing any.
        - Of releases with the plugin V(prompt) and V(decode) are whole shapes, C([batch size, query length, context
          blocks]), or V(unified) is C([query, shared, unique, causal]); they are exact for V(kv_blocks).
          V(kv_blocks_from) says where that number is from (V(num_gpu_blocks_override), V(this node's last start),
          V(the memory model)), V(reason) why the strategy was taken, V(compared) what
          each strategy would warm up and pad (V(unprepared_percent) is what no shape holds and compiles later), and
          V(without_effect) which variables change nothing about buckets.
        - Release 1.16 has no buckets. There the lists are the shapes of decoding that its server captures.
      type: dict
      sample:
        warmup: all graphs
        strategy: linear with padding limit
        prompt_bs: [1]
        prompt_seq: [896, 1152]
        decode_bs: [1, 2, 4]
        decode_block: [128, 256]
        graphs: 14
    memory:
      description: What weights, graphs and KV cache take of a card, and whether it fits. GiB unless the name says
        otherwise.
      type: dict
      sample: {card_mib: 98304, weights_gib_per_card: 7.63, graphs_gib: 7.78, kv_cache_gib: 70.06, fits: true}
    requires:
      description: What must be there before it is started, such as weights, room on the disk, cards, host NICs; with
        O(image) also the parts that the image must have.
      type: dict
      sample: {cards: 2, weights_path: /data/models/Qwen3-8B, weights_bytes: 16381470720, disk_bytes: 42949672960}
    explain:
      description: For every value the rule that made it, the rule's source, and the numbers that went in.
      type: list
      elements: dict
      sample:
        - value: environment.VLLM_DECODE_BS_BUCKET_STEP
          result: "2"
          rule: decode-bs-step
          source: vllm-fork 4cd8c0613 scripts/utils.sh set_bucketing
          inputs: {max_num_seqs: 32}
    warnings:
      description: What a person should know although it can be started.
      type: list
      elements: str
      sample: []
refused_id:
  description: The RV(plans[].refused_id) of the first request that was refused, or what is wrong with something else.
  returned: when the task fails for a refusal
  type: str
  sample: no_cards
topology:
  description: The topology the plans were made for; null where every request was refused before one was read.
  returned: always
  type: dict
  sample: {schema: 1, cards: [], hl_smi_version: 1.22.1, driver_version: 1.22.1-97ec1a4, addresses: [], findings: []}
reserved:
  description: Instances by the module id they hold a reservation for; empty for a topology that was given.
  returned: when a request was planned
  type: dict
  sample: {"0": qwen3-8b, "1": qwen3-8b}
how_to_get:
  description: How to get the weights of an instance, a sentence by instance name.
  returned: always
  type: dict
  sample:
    qwen3-8b: "Get them with: ansible-playbook playbooks/fetch_weights.yml -e model=qwen3-8b; by hand: ..."
source_plans:
  description: Where weights can be fetched from, a list by instance name.
  returned: always
  type: dict
  sample: {}
pins:
  description:
    - What pins the weights, the measurements and the image of each plan, a line each, in the order of RV(plans); empty
      for a refused request. A commit alone does not prove what a mirror sends.
    - Where the server runs code of its weights that no checksum pins, also why C(site.yml) refuses that.
  returned: always
  type: list
  elements: list
  sample: [[weights pinned by commit only, image not pinned]]
image_base:
  description: Base image of images that are built, with its digest where it is pinned; empty where none is built.
  returned: always
  type: str
  sample: ""
release:
  description: The release's file in C(catalog/releases), with what it takes from those it extends; empty where there is
    none that can be read.
  returned: always
  type: dict
  sample: {name: "1.22", rules: "1.22", software: {driver: 1.22.2-32}}
page:
  description: The node and the plans as text for people.
  returned: with O(page=true)
  type: str
  sample: "8 x HL-225, eth0 10.20.0.11/24 ..."
"""
