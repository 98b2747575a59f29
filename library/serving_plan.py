"""Compute what has to be started, on which cards and cores, to serve models on a Gaudi node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: serving_plan
short_description: Compute what has to be started to serve models on a Gaudi node
description:
  - Plans a list of requests in one call. Cards and ports of an earlier instance count as taken for later requests;
    a request without an instance is a question and takes nothing.
  - Reads the node's cards, the reservations and the headers of the weights; changes nothing. With O(topology) nothing
    is read from the node, so that a plan can be made for a machine that is not there.
  - A request that cannot be granted is refused in one sentence that names the option, the value and the limit.
  - The action plugin of the same name loads and checks the catalogue and fills O(release), O(models) and O(cards).
version_added: "0.1.0"
options:
  requests:
    description:
      - Requests, each a mapping of options. O(requests[].model) (a name of the catalogue) or O(requests[].weights) is
        needed.
      - An option that is left out follows the model's catalogue file, then the release.
    type: list
    elements: dict
    required: true
    suboptions:
      instance:
        description: Name of the instance; needed to serve. Its own reserved cards stay its own.
        type: raw
      model:
        description: Name of a file in catalog/models.
        type: raw
      weights:
        description: Absolute path on the node, or a hub id, served as it is.
        type: raw
      model_config:
        description: Content of the model's config.json, for models without a catalogue file.
        type: raw
      served_model_name:
        description: Name clients ask for. The catalogue's name, or the path.
        type: raw
      share_card_with:
        description: Further embedding or rerank models of the catalogue, served by the same server on the same card.
        type: raw
      tensor_parallel_size:
        description: Number of cards, 1 to 16.
        type: raw
      modules:
        description: V(auto), V(all), or a list of module ids, which is obeyed or refused, never changed.
        type: raw
      dtype:
        description: V(auto), V(bfloat16), V(float32), V(fp8), V(awq) or V(gptq).
        type: raw
      quantization_config:
        description: Path of an INC configuration on the node; means FP8.
        type: raw
      kv_cache_dtype:
        description: V(auto), V(fp8), V(fp8_inc), V(fp8_e4m3) or V(fp8_e5m2).
        type: raw
      max_model_len:
        description: Longest request in tokens, input and output together.
        type: raw
      input_range:
        description: Shortest and longest input in tokens.
        type: raw
      output_range:
        description: Shortest and longest output in tokens.
        type: raw
      max_num_seqs:
        description: Most sequences at once.
        type: raw
      max_num_batched_tokens:
        description: Most tokens in a prefill batch.
        type: raw
      max_num_prefill_seqs:
        description: Most sequences in a prefill batch, or V(auto).
        type: raw
      max_seq_len_to_capture:
        description: Longest sequence captured in a graph, from 2048.
        type: raw
      gpu_memory_utilization:
        description: Share of the memory that is free after loading, 0.05 to 1.0.
        type: raw
      padding_limit:
        description: Largest share of padding in a bucket, 0.0 to 0.5.
        type: raw
      scheduler_steps:
        description: Steps of the scheduler between two updates.
        type: raw
      partial_warmup:
        description: Mapping of max_num_seqs and max_seq_len, warmed up instead of everything. Release 1.21 only.
        type: raw
      skip_warmup:
        description: Start without a warm-up.
        type: raw
      profile:
        description: Write a trace of the high-level profiler.
        type: raw
      zero_padding:
        description: Fill padding with zeros.
        type: raw
      fused_sdpa:
        description: Use the fused attention kernel for prompts.
        type: raw
      fp32_softmax:
        description: Compute softmax in float32; by the model's type and size where not given.
        type: raw
      enforce_eager:
        description: Run without graphs.
        type: raw
      lazy_mode:
        description: PyTorch lazy mode.
        type: raw
      block_size:
        description: Tokens of a KV cache block.
        type: raw
      graph_reserved_mem:
        description: Share of the usable memory kept for graphs.
        type: raw
      graph_prompt_ratio:
        description: Share of the graph memory for prompts.
        type: raw
      graph_prompt_strategy:
        description: V(min_tokens) or V(max_bs).
        type: raw
      graph_decode_strategy:
        description: V(min_tokens) or V(max_bs).
        type: raw
      exponential_bucketing:
        description: Space buckets exponentially.
        type: raw
      log_step_graph_compilation:
        description: Log steps that compile a graph.
        type: raw
      log_step_graph_compilation_all:
        description: Log compilation of every step.
        type: raw
      log_step_cpu_fallbacks:
        description: Log steps that fall back to the CPU.
        type: raw
      log_step_cpu_fallbacks_all:
        description: Log fallbacks of every step.
        type: raw
      metrics_gc_details:
        description: Detailed metrics of the graph compiler.
        type: raw
      recipe_cache:
        description: Directory of compiled recipes, or a mapping of directory and size (MiB); false or null for none.
        type: raw
      trust_remote_code:
        description: Run code that comes with the weights. The catalogue says so for its models; off for others.
        type: raw
      extra_args:
        description: List of further arguments of the server, one list entry an argument.
        type: raw
      extra_environment:
        description: Mapping of further variables; they win over computed ones.
        type: raw
      host:
        description: Address the server listens on.
        type: raw
      port:
        description: Port the server listens on.
        type: raw
      node_address:
        description: Address of the node that its processes talk over.
        type: raw
      network_interface:
        description: Interface of that address.
        type: raw
  release:
    description: Content of the release's catalogue file.
    type: dict
    required: true
  models:
    description: Contents of catalogue files by model name, for all models the requests name.
    type: dict
    default: {}
  cards:
    description: Content of catalog/cards.yml.
    type: dict
    required: true
  topology:
    description:
      - Topology of the node, as M(gaudi_topology_info) returns it or as recorded hl-smi output. Read from the node
        where not given; reservations and weights are then read as well.
    type: dict
  weights_root:
    description: Directory of the models on the node.
    type: path
    default: /data/models
  image_registry:
    description: Registry to take the image from instead of the release's own.
    type: str
  reservations_file:
    description: File of M(card_reservation).
    type: path
    default: /var/lib/gaudi-serving/cards.lock
  on_refusal:
    description: Whether a refused request ends the task, or is reported beside the plans of the others.
    type: str
    choices: [fail, report]
    default: fail
attributes:
  check_mode:
    description: Reads only, so that check mode makes no difference.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
author:
  - gaudi-serving
"""

EXAMPLES = r"""
- name: Plan the instances of a node
  serving_plan:
    requests:
      - {instance: qwen3-8b, model: qwen3-8b, port: 30001}
      - {instance: my-model, weights: /data/models/My-7B, tensor_parallel_size: 1, port: 30002}
    release: "1.22"
  register: serving

- name: Plan for a machine that is not there, refusals included
  serving_plan:
    requests: "{{ plan_requests }}"
    release: "1.22"
    topology: "{{ lookup('file', 'topology.json') | from_json }}"
    on_refusal: report
  register: serving
"""

RETURN = r"""
plans:
  description:
    - One plan for each request, in order.
    - For a refused request (with O(on_refusal=report)) only C(instance) and C(refused), the sentence that says why.
  returned: always
  type: list
  elements: dict
  sample:
    - instance: qwen3-8b
      image: vault.habana.ai/gaudi-docker/1.22.2/ubuntu22.04/habanalabs/pytorch-installer-2.7.1:1.22.2-32
      modules: [{module_id: 0, serial: AN00000000}, {module_id: 1, serial: AN00000001}]
      cpu_binding: [numactl, -C, "0-9,10-19", -p, "0"]
      listen: {host: 127.0.0.1, port: 30001}
topology:
  description: The topology the plans were made for.
  returned: always
  type: dict
  sample: {schema: 1, cards: [], hl_smi_version: 1.22.1, driver_version: 1.22.1-97ec1a4, addresses: [], findings: []}
reserved:
  description: Instances by the module id they hold a reservation for; empty for a topology that was given.
  returned: success
  type: dict
  sample: {"0": qwen3-8b, "1": qwen3-8b}
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.checks import Refusal
from ansible.module_utils.gaudi.plan_many import Catalogue, plan_all
from ansible.module_utils.gaudi.plan_weights import CONVERTED, INDEX, PREFIX_BYTES, Weights, header_bytes, weights_from
from ansible.module_utils.gaudi.reservations import holders, parse_reservations
from ansible.module_utils.gaudi.topology import topology_from_case
from ansible.module_utils.gaudi_reader import read_topology

ARGUMENT_SPEC: dict[str, Any] = {
    "requests": {"type": "list", "elements": "dict", "required": True},
    "release": {"type": "dict", "required": True},
    "models": {"type": "dict", "default": {}},
    "cards": {"type": "dict", "required": True},
    "topology": {"type": "dict"},
    "weights_root": {"type": "path", "default": "/data/models"},
    "image_registry": {"type": "str"},
    "reservations_file": {"type": "path", "default": "/var/lib/gaudi-serving/cards.lock"},
    "on_refusal": {"type": "str", "choices": ["fail", "report"], "default": "fail"},
}


def read_weights(path: str) -> Weights | None:
    """Headers and index of the safetensors files in a directory; None where there is no such directory.

    Raises Refusal with the name of a file that is cut short or no safetensors file.
    """
    directory = Path(path)
    if not directory.is_dir():
        return None
    headers = {}
    for shard in sorted(directory.glob("*.safetensors")):
        with shard.open("rb") as stream:
            prefix = stream.read(PREFIX_BYTES)
            length = header_bytes(shard.name, prefix, shard.stat().st_size)
            headers[shard.name] = (stream.read(length), shard.stat().st_size)
    index = directory / INDEX
    text = index.read_text(encoding="utf-8") if index.is_file() else None
    return weights_from(headers, text, converted=(directory / CONVERTED).is_file())


def read_reservations(path: str) -> str:
    """The text of the reservation file; nothing is reserved where there is none.

    Raises Refusal, with the path, for a file nobody can read: to go on would give cards away twice.
    """
    file = Path(path)
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    try:
        parse_reservations(text)
    except ValueError as error:
        raise Refusal(f"{path} cannot be used: {error}. Restore it; without it cards could be given twice.") from error
    return text


def main() -> None:
    """Collect the facts, plan, answer."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    given = module.params["topology"]
    try:
        catalogue = Catalogue.from_mappings(module.params["release"], module.params["models"], module.params["cards"])
        topology = read_topology(module) if given is None else given
        if "hl_smi_topo" in topology:
            topology = topology_from_case(topology)
        # A topology that was given says nothing about the files of the machine this runs on.
        reservations = read_reservations(module.params["reservations_file"]) if given is None else ""
        plans = plan_all(
            module.params["requests"],
            catalogue,
            topology,
            weights_root=module.params["weights_root"],
            image_registry=module.params["image_registry"],
            reservations=reservations,
            read_weights=read_weights if given is None else None,
        )
    except ValueError as error:  # refusals are, and what a given topology cannot be read for
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error.filename} cannot be read: {error.strerror}. Plan as root.")
    refused = [plan["refused"] for plan in plans if "refused" in plan]
    if refused and module.params["on_refusal"] == "fail":
        module.fail_json(msg=" ".join(refused), plans=plans, topology=topology)
    reserved = {str(module_id): name for module_id, name in holders(parse_reservations(reservations)).items()}
    module.exit_json(changed=False, plans=plans, topology=topology, reserved=reserved)


if __name__ == "__main__":
    main()
