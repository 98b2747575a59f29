"""Known faults of an instance, shown by a line of its server's log. A part of the list in known.py."""

from __future__ import annotations

from .entry import CARDS, ENGINE, HOST, INSTANCES, KnownFault
from .shared import COMPACT, FULL, MANUAL, NOT_ACQUIRED, PLUGIN, START_AGAIN

FAULTS = (
    # Instances, by a line of the server's log or of docker's. The order matters: of all entries with a match among the
    # last lines, the first one is the reason; the others are its consequences.
    KnownFault(
        "card-busy",
        CARDS,
        "",
        "A card of this instance is held by another process or container: {holders}.",
        "Stop it, or plan other cards; containers with HABANA_VISIBLE_DEVICES=all each take every card.",
        "tgi-gaudi 93, GenAIExamples 137, public issues",
        retry=True,
        signs=r"Device already acquired|synStatus=20\b|synDeviceAcquire.{0,200}synapse error: 20\b",
        hints=NOT_ACQUIRED,
        when="card_held",
        check="hl-smi shows processes on a card of the plan, or docker ps shows another container with all cards: stop "
        "it, or give each its own cards",
        example="RuntimeError: synStatus=20 [Device already acquired] Device acquire failed.",
    ),
    KnownFault(
        "card-not-passed",
        ENGINE,
        "",
        "The driver offers the cards, but the container had no device of module {not_passed}.",
        "Give --runtime=habana, and name every card of the server in HABANA_VISIBLE_DEVICES. For an instance of this "
        "project run the playbook again (role container_runtime).",
        "habana-container-runtime, which passes the devices that HABANA_VISIBLE_DEVICES names",
        hints=NOT_ACQUIRED,
        when="card_not_passed",
        check="in the container ls /dev/accel shows fewer cards than it is to have: give --runtime=habana and "
        "HABANA_VISIBLE_DEVICES",
        example="RuntimeError: synStatus=8 [Device not found] Device acquire failed.",
    ),
    KnownFault(
        "other-release",
        ENGINE,
        "",
        "Driver ({driver}) and software of the image ({image}) are of two releases.",
        "Install the driver of the image's release (playbooks/driver.yml), or serve with an image of the driver's.",
        "vllm-fork 484, a public issue: the vendor's image of the driver's release cured it",
        # LKD is the driver in HCL's sources.
        signs=r"[Ii]ncompatible LKD version",
        hints=f"{NOT_ACQUIRED}|Graph compile failed|synNodeCreate\\w* failed for node",
        when="releases_differ",
        check="hl-smi and the image are of two releases: install the driver of the image's (playbooks/driver.yml)",
        example="Incompatible LKD version",
    ),
    KnownFault(
        "engine-ready-timeout",
        INSTANCES,
        "",
        "Loading and warm-up took longer than the server waits for them.",
        "Raise VLLM_ENGINE_READY_TIMEOUT_S in extra_environment, or warm up fewer buckets.",
        PLUGIN,
        signs=r"Timed out waiting for (?:engine core processes to start|engines to send ?initial message)",
        example="TimeoutError: Timed out waiting for engine core processes to start.",
    ),
    KnownFault(
        "worker-timeout",
        INSTANCES,
        "",
        "A worker did not answer the engine in time.",
        "Read dmesg | grep habanalabs: a card that was reset, or a link that went down, does this. Otherwise a graph "
        "took too long to compile while a request waited: warm up its shape (playbooks/status.yml names it), or raise "
        "the time in extra_environment: VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS, or VLLM_ENGINE_ITERATION_TIMEOUT_S and "
        "VLLM_RPC_TIMEOUT of the forks, where the release reads it.",
        "vllm/v1/executor/multiproc_executor.py, vllm/engine/multiprocessing/client.py and async_llm_engine.py; vllm "
        "17965, a public issue",
        retry=True,
        signs=r"RPC call to \w+ timed out|Engine iteration timed out|Server didn't reply within \d+ ms",
        example="TimeoutError: RPC call to execute_model timed out.",
    ),
    KnownFault(
        "vendor-libraries",
        INSTANCES,
        "",
        "The vendor's plugin for PyTorch does not load: the image lacks its libraries, or has another PyTorch "
        "than the one that it was built for.",
        "Use the vendor's image of the driver's release as it is. Where packages are added to it, keep its torch "
        "(serving_image_constraints): pip replaces it when a package asks for another version.",
        "the dynamic linker; docs/images.md",
        signs=r"lib(?:Synapse|hccl|hcl|hl-thunk|synapse_logger|tpc)\w{0,60}\.so[.\d]*: cannot open shared "
        r"object|habana\S*\.so\S*: undefined symbol",
        example="OSError: libSynapse.so: cannot open shared object file: No such file or directory",
    ),
    KnownFault(
        "no-plugin",
        INSTANCES,
        "",
        "The image has no vLLM for Gaudi (the vendor's fork, or vllm-gaudi), or none of the vendor's PyTorch.",
        "Build it (serving_image_build), or name one of the vendor's ready-made ones.",
        PLUGIN,
        signs=r"running on UnspecifiedPlatform|Failed to infer device type|Found no NVIDIA driver"
        r"|lib(?:cuda|cudart|cublas|cudnn|nvrtc|torch_cuda)\.so\S*: cannot open|No module named 'habana_frameworks"
        r"|module 'torch' has no attribute 'hpu'|Device string must not be empty"
        r"|Distributed package doesn't have HCCL|ProcessGroupNCCL is only supported with GPUs"
        r"|\bvllm: (?:command )?not found|\"vllm\\?\": executable file not found|No module named '?vllm(?:_gaudi|'|$)"
        r"|is detected as neither HPU fork nor CPU upstream",
        example="RuntimeError: Failed to infer device type",
    ),
    KnownFault(
        "system-library-missing",
        INSTANCES,
        "",
        "The image lacks a library of the operating system: {it}.",
        "Install its package in the image (apt-file search NAME names it): libGL.so.1 is in libgl1, libglib-2.0 and "
        "libgthread-2.0 in libglib2.0-0, libsndfile in libsndfile1. For pictures opencv-python-headless in place of "
        "opencv-python needs no libGL.",
        "the dynamic linker; mmocr 90 and FireForm 184, public issues",
        signs=r"(?:ImportError|OSError|error while loading shared libraries): (lib[\w.+-]{1,60}\.so[.\d]{0,10}): "
        r"cannot open shared object file",
        example="ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
    ),
    KnownFault(
        "context-not-created",
        HOST,
        "",
        "The driver found no whole piece of the host's low memory, though the cards are free.",
        COMPACT,
        PLUGIN,
        retry=True,
        signs=r"ctx_init failed|Failed to create context -12\b",
        example="habanalabs 0000:33:00.0: Failed to create context -12",
    ),
    KnownFault(
        "locked-memory",
        HOST,
        "",
        "Memory could not be registered for the cards' network: the limit of locked memory (memlock) is too low.",
        "Raise it: docker run --ulimit memlock=-1 (plans of this project do), LimitMEMLOCK=infinity in a unit, or "
        "/etc/security/limits.conf for a login. ulimit -l in the container shows what counts.",
        "ibv_reg_mr(3) of rdma-core: ENOMEM",
        signs=r"[Uu]nable to register (?:MR|memory)\b.{0,80}Cannot allocate memory"
        r"|ibv_reg_(?:dmabuf_)?mr\w*\b.{0,200}(?:Cannot allocate memory|errno[ =:]{1,3}12\b|\bENOMEM\b)"
        r"|Cannot allocate memory.{0,100}ibv_reg_",
        example="hcl_ibverbs.cpp:405(reg_mr): The condition [ ibmr ] failed. ibv_reg_dmabuf_mr() failed: Cannot "
        "allocate memory",
    ),
    KnownFault(
        "no-verbs",
        CARDS,
        "",
        "HCCL found no card over verbs: habanalabs_ib is not loaded.",
        "Load ib_uverbs, then habanalabs_ib; on Ubuntu it needs linux-modules-extra of the running kernel.",
        PLUGIN,
        signs=r"ibv initialization failed|failed to find matching Habana IB device",
        when="verbs_missing",
        check="lsmod lacks habanalabs_ib: load ib_uverbs, then habanalabs_ib",
        example="hcl_device_control_factory.cpp:84(initDevice): The condition [ g_ibv.init(deviceConfig) == "
        "hcclSuccess ] failed. ibv initialization failed",
    ),
    KnownFault(
        "verbs-not-passed",
        ENGINE,
        "",
        "The module habanalabs_ib is loaded, but /dev/infiniband is not there.",
        "Load ib_uverbs, then start the container with --runtime=habana, which passes /dev/infiniband on. For an "
        "instance of this project run the playbook again (role container_runtime).",
        "habana-container-runtime",
        hints=r"ibv initialization failed|failed to find matching Habana IB device",
        when="verbs_not_passed",
        check="/dev/infiniband is missing: load ib_uverbs",
        example="ibv initialization failed",
    ),
    KnownFault(
        "verbs-failed",
        CARDS,
        "",
        "HCCL found no card over verbs, although habanalabs_ib is loaded.",
        "Check the links of the cards (hl-smi -Q, playbooks/accept.yml), and dmesg | grep habanalabs.",
        "HCL's own line",
        signs=r"ibv initialization failed|failed to find matching Habana IB device",
        example="ibv initialization failed",
    ),
    KnownFault(
        "server-type",
        CARDS,
        "",
        "HCL of the image does not know this type of server or card.",
        "Take an image of a release that has the card (catalog/releases, requirements). A card of the first "
        "generation, as in Amazon's DL1, serves with no release.",
        "hccl_demo 44, a public issue: HCL 1.19.1 on DL1",
        signs=r"Invalid server type|[Uu]nsupported (?:server|device) type",
        example="hcl_device_control_factory.cpp::71(initDevice): The condition [ false ] failed. Invalid server type "
        "(4[OCP1]) requested to generate controller.",
    ),
    KnownFault(
        "card-reset",
        CARDS,
        "",
        "The driver reset a card while it was used.",
        "Read dmesg | grep habanalabs, which says why. The next attempt starts with the card as it is after its reset; "
        "if it is reset again, have it checked (playbooks/accept.yml).",
        "synDeviceReset, 17, in synapse_common_types.h",
        retry=True,
        signs=r"synStatus[= ]+(?:synStatus )?17\b|\[Device (?:in reset|reset)\]",
        example="RuntimeError: synStatus=17 [Device in reset] synEventSynchronize failed.",
    ),
    KnownFault(
        "card-fatal-error",
        CARDS,
        "",
        "The vendor's software ended the process: a card reported a critical error, or made no progress for too long.",
        "Read dmesg | grep habanalabs, which names the card and its error. The next attempt starts with the card as it "
        "is after its reset; if it happens again, have the card checked (playbooks/accept.yml).",
        "vllm-fork 2134 and milabench 356, public issues",
        retry=True,
        signs=r"Synapse detected a device critical error|Synapse is being terminated due to fatality",
        example="Synapse detected a device critical error that requires a restart. Killing process in 5 seconds "
        "(hl: 6) 10:29:11 [No progress error]",
    ),
    KnownFault(
        "too-few-cards",
        CARDS,
        "",
        "The server was given fewer cards than it was told to use.",
        "Give the container as many cards as tensor_parallel_size says (HABANA_VISIBLE_DEVICES), and check that hl-smi "
        "lists them.",
        "synFailedNotEnoughDevicesFound, 16, in synapse_common_types.h; vllm/executor/ray_utils.py",
        signs=r"synStatus[= ]+(?:synStatus )?16\b|Cannot provide a placement group of|Current node has no (?:HPU|GPU) "
        r"available|required (?:HPUs|GPUs) exceeds the total number of available",
        example="ValueError: The number of required HPUs exceeds the total number of available HPUs in the placement "
        "group.",
    ),
    KnownFault(
        "wrong-buckets",
        INSTANCES,
        "",
        "The buckets contradict themselves, or a line of the bucket file is malformed.",
        "Correct the bucket variables or the file.",
        PLUGIN,
        signs=r"_lru_cache_wrapper' object has no attribute|Generated 0 (?:prompt|decode) buckets"
        r"|Min\. batch size cannot be greater than max|bucketing_strategy: .* is not in allowed options",
        example="AssertionError: Min. batch size cannot be greater than max",
    ),
    KnownFault(
        "lazy-mode",
        INSTANCES,
        "",
        "The server cannot run this model in lazy mode on this card.",
        "Leave lazy_mode out; or set PT_HPUGRAPH_DISABLE_TENSOR_CACHE to false in extra_environment, or "
        "enforce_eager. A card of the first generation (HL-205) serves with no release.",
        PLUGIN,
        signs=r"ValidateSyncInputTensors tensor_data is empty|Neither storage attached to input tensor",
        example="RuntimeError: Neither storage attached to input tensor, not its view.",
    ),
    KnownFault(
        "lazy-collectives",
        INSTANCES,
        "",
        "HPU graphs of a model on several cards need collectives in lazy mode, and this server has them switched off.",
        "Set PT_HPU_ENABLE_LAZY_COLLECTIVES to true (plans of this project do where a release needs it); or set "
        "enforce_eager, which makes no graphs.",
        "vllm-fork 192 and 495, public issues",
        signs=r"collective nonSFG is not supported during hpu graph capturing",
        example="RuntimeError: collective nonSFG is not supported during hpu graph capturing",
    ),
    KnownFault(
        "scale-patching",
        INSTANCES,
        "",
        "Scales cannot be patched at run time with this scaling method.",
        "Set RUNTIME_SCALE_PATCHING to 0 in extra_environment, or calibrate with another scaling method.",
        PLUGIN,
        signs=r"Scaling method \S+ is not supported for runtime scale patching",
        example="ValueError: Scaling method MAXABS_HW is not supported for runtime scale patching",
    ),
    KnownFault(
        "graph-compiler",
        INSTANCES,
        "",
        "The graph compiler could not build a graph.",
        "Check first that driver and image are of one release (hl-smi, playbooks/status.yml). If they are, try "
        "enforce_eager, or another release. Where it came with a request, the graph was not warmed up: without "
        "VLLM_SKIP_WARMUP such a failure shows at the start.",
        PLUGIN + "; vllm-fork 484, vllm-gaudi 1734",
        remedies={
            "gated_delta": "It was seen with models of gated delta layers on 1.24.1, which ran with plugin 0.24.0. Try "
            "enforce_eager, or another release."
        },
        cases=True,
        signs=r"Graph compile failed|synNodeCreate\w* failed for node|compileGraph: Can ?not compile"
        r"|synGraphCompile: SYN_API_CALL failed|Graph optimization failed pass",
        example="RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure].",
    ),
    KnownFault(
        "software-versions",
        INSTANCES,
        "",
        "Parts of the software in the image are of two versions: one calls another with what it does not have or take.",
        "Take vLLM or its fork, vllm-gaudi or vllm-hpu-extension, transformers and the vendor's PyTorch from one "
        "release, as an image that serving_image_build makes has them. Where they are, this release does not serve the "
        "model: docs/models.md lists those that were validated.",
        "vllm-fork 462, vllm-gaudi 652 and 891, vllm-hpu-extension 184 and optimum-habana 1163, public issues",
        # A function is called with other arguments than it takes. Those of a calibration have an entry of their own.
        signs=r"TypeError: (?!Patched|(?:EngineArgs|LLM)\.__init__)(?:\w{1,60}\.){0,4}\w{1,60}\(\) "
        r"(?:missing \d+ required|takes |got an unexpected keyword|got multiple values for)"
        r"|cannot import name '\w+' from '(?:habana_frameworks|transformers|tokenizers|torch|vllm|vllm_gaudi)\b"
        r"|ModuleNotFoundError: No module named '(?:vllm|vllm_gaudi|transformers|torch)\.(?!_)"
        r"|module '(?:habana_frameworks|vllm_gaudi|vllm|transformers)[\w.]*' has no attribute"
        # The system of a host or image is older than the one that a library was built on.
        r"|version .(?:GLIBC|GLIBCXX|CXXABI)_[\d.]{1,12}. not found"
        # A class of vLLM or transformers lacks what another part of the image asks it for.
        r"|AttributeError: '(?:HPU\w{1,60}|\w{1,60}(?:For(?:CausalLM|ConditionalGeneration)|Config|Args"
        r"|Tokenizer(?:Fast)?|Processor))' object has no attribute",
        example="TypeError: FusedSDPA.forward() takes from 4 to 9 positional arguments but 12 were given",
    ),
    KnownFault(
        "model-not-for-card",
        INSTANCES,
        "",
        "The server of this release cannot run this model on Gaudi.",
        "Serve it with another release, or serve another model; docs/models.md lists what was validated.",
        PLUGIN + "; vllm 13054",
        remedies={
            "gpt_oss": "gpt-oss is validated on Gaudi 3 only. There, serve it with another release.",
            "gemma4_too_early": "Gemma 4 is validated from 1.24.1 on.",
        },
        cases=True,
        signs=r"Head size \d+ is not supported by PagedAttention|view size is not compatible with input tensor"
        r"|NotImplementedError: (?!Medusa).{0,200}not (?:supported|implemented) (?:on|for) HPU"
        # gpt-oss with data parallelism: its router's output has another form (hpu_dp_utils.py, dispatch_tensor).
        r"|AssertionError: Input must be 2D",
        example="NotImplementedError: Sparse Attention is not supported on HPU.",
    ),
    KnownFault(
        "experts-not-divisible",
        INSTANCES,
        "",
        "FP8 weights are scaled in blocks, and the cards cannot divide an expert into whole blocks.",
        "Set enable_expert_parallel, or use fewer cards for a copy of the model; more copies with as many cards each "
        "do not help.",
        "vLLM, fp8.py; an owner of eight Gaudi 2",
        signs=r"is not divisible by weight quantization block_[nk] = \d",
        example="ValueError: The output_size of gate's and up's weight = 192 is not divisible by weight quantization "
        "block_n = 128.",
    ),
    KnownFault(
        "quantization-not-for-card",
        INSTANCES,
        "",
        "This release has no kernel for weights that are quantized so.",
        "Serve other weights (BF16, or FP8 of the vendor's kind). Of compressed-tensors in whole numbers of 8 bits "
        "(the KeyError) releases with plugin 0.21 or later make BF16. playbooks/plan.yml -e every_release=true "
        "-e model_config=FILE names the releases that serve a config.json.",
        "vllm-gaudi 567, a public issue",
        signs=r"KeyError: <PlatformEnum\.(?:HPU|OOT)|\w quantization is (?:currently )?not supported (?:in|on|for) "
        r"(?i:hpu)",
        example="KeyError: <PlatformEnum.HPU: 4>",
    ),
    KnownFault(
        "experts-quantized",
        INSTANCES,
        "",
        "This release has no code for Gaudi for experts that are quantized so.",
        "Serve the model with experts in BF16 or FP8. Of models with MXFP4 only those of docs/models.md are served, by "
        "the releases that stand there.",
        "vllm/model_executor/layers/fused_moe/oracle; vllm-gaudi 1549, a public issue",
        signs=r"No \w{2,20} MoE backend\b",
        example="NotImplementedError: No MXFP4 MoE backend supports the deployment configuration.",
    ),
    KnownFault(
        "operation-missing",
        INSTANCES,
        "",
        "The server calls an operation that PyTorch for Gaudi or this image does not have: code that was written for "
        "other accelerators.",
        "Leave out the option that leads there: the place beside the error names the code (--load-format dummy, kinds "
        "of quantization and samplers do that). Otherwise this release does not serve the model; docs/models.md lists "
        "what was validated.",
        "PyTorch's dispatcher; vllm-fork 627 and 754, public issues",
        signs=r"Device type HPU is not supported|not implemented for '(?i:hpu)'"
        r"|Could not run '[\w:.]{1,80}' with arguments from the '(?:HPU|CUDA)' backend|Torch not compiled with CUDA"
        r"|'_OpNamespace' '\w{1,40}' object has no attribute",
        example="RuntimeError: Device type HPU is not supported for torch.Generator() api.",
    ),
    KnownFault(
        "forked-late",
        INSTANCES,
        "",
        "A worker was forked from a process that already used a card.",
        "Set VLLM_WORKER_MULTIPROC_METHOD to spawn (plans of this project do not need it).",
        "torch and vllm/utils",
        signs=r"Cannot re-initialize \w{2,5} in forked subprocess",
        example="RuntimeError: Cannot re-initialize HPU in forked subprocess.",
    ),
    KnownFault(
        "triton-kernel",
        INSTANCES,
        "",
        "The server calls a kernel written in Triton, and Triton has no driver for Gaudi: this release has no code of "
        "its own for that part of the model or that option.",
        "Leave out the option that needs it (a kind of quantization, LoRA, a sampler), or serve the model with another "
        "release; docs/models.md lists what was validated.",
        "triton/runtime/driver.py",
        signs=r"\b0 active drivers \(\[",
        example="RuntimeError: 0 active drivers ([]). There should only be one.",
    ),
    KnownFault(
        "model-unknown",
        INSTANCES,
        "",
        "The server of this release does not know the architecture of this model.",
        "Serve it with a release that has it (docs/models.md lists models and releases), or serve another model.",
        "the model registry of vLLM, and transformers",
        signs=r"Model architectures \[.{0,200}\] (?:are not supported|failed to be inspected)"
        r"|Transformers does not recognize this architecture|has no vLLM implementation",
        example="ValueError: Model architectures ['GlmMoeDsaForCausalLM'] are not supported for now.",
    ),
    KnownFault(
        "code-not-trusted",
        INSTANCES,
        "",
        "The folder of the weights has code of its own, and the server was not told to run it.",
        "Read the code, then set trust_remote_code in the request; or serve a model without code.",
        "transformers/dynamic_module_utils.py",
        signs=r"contains custom code which must be executed|(?:[Pp]lease pass|\bset) .{0,40}trust_remote_code=True"
        r"|Not a directory: '/[\w./-]{1,40}/trust_remote_code_is_off",
        example="ValueError: The repository for /models/x contains custom code which must be executed to "
        "correctly load the model.",
    ),
    KnownFault(
        "pictures-together",
        INSTANCES,
        "",
        "The server computed several requests with pictures at once, and this release cannot do that with this model.",
        "Serve the model with another release (docs/models.md lists what was validated), or set max_num_seqs to 1.",
        "vllm-fork 841, a public issue",
        signs=r"Attempted to assign [\d +=]{1,200} multimodal tokens to \d{1,9} placeholders",
        example="ValueError: Attempted to assign 2160 + 2144 = 4304 multimodal tokens to 0 placeholders",
    ),
    KnownFault(
        "too-many-at-once",
        INSTANCES,
        "",
        "More requests came at once than the KV cache holds.",
        "The log says how many it holds (Maximum concurrency). Lower max_num_seqs or max_model_len, or what "
        "clients send at once.",
        PLUGIN,
        retry=True,
        signs=r"AssertionError: req_id: ",
        example="AssertionError: req_id: chatcmpl-1",
    ),
    KnownFault(
        "speculation",
        INSTANCES,
        "",
        "A server with n-gram speculation was seen to end so in its warm-up.",
        "Leave speculative_config out, or try eagle.",
        PLUGIN,
        asked="ngram",
        signs=r"IndexError: index \d+ is out of bounds",
        example="IndexError: index 8 is out of bounds for dimension 0 with size 8",
    ),
    KnownFault(
        "no-drafter",
        INSTANCES,
        "",
        "The plugin has no such speculation.",
        "Leave speculative_config out, or try eagle.",
        PLUGIN,
        signs=r"Medusa speculative decoding is not supported|Unknown speculative decoding method",
        example="NotImplementedError: Medusa speculative decoding is not supported",
    ),
    KnownFault(
        "option-not-for-gaudi",
        INSTANCES,
        "",
        "This release does not have on Gaudi what the line names.",
        "Leave that option out, or take a release that has it (docs/models.md and the plugin's page of features).",
        PLUGIN,
        signs=r"^(?:\w{1,60}\.)*\w{0,60}(?:Error|Exception): .{0,200}\bnot (?:yet |currently )?(?:supported|implemented"
        r"|available) (?:on|for|by|in|with) (?:the |Intel )?(?i:hpu|gaudi)",
        example="ValueError: Prompt logprobs are not supported on HPU",
    ),
    KnownFault(
        "profiled",
        INSTANCES,
        "",
        "A server that is told to profile ends when it has done so.",
        "Leave VLLM_PROFILE_PROMPT, VLLM_PROFILE_DECODE and VLLM_PT_PROFILE out of extra_environment.",
        PLUGIN,
        signs=r"AssertionError: Finished profiling",
        example="AssertionError: Finished profiling",
    ),
    KnownFault(
        "kv-cache-too-small",
        INSTANCES,
        "",
        "Too little device memory is left for the KV cache.",
        "Raise gpu_memory_utilization, lower max_model_len or the ranges, or raise tensor_parallel_size, "
        + START_AGAIN,
        "the workers and kv_cache_utils.py of vLLM",
        signs=r"No available memory for the cache blocks|can be stored in KV cache"
        r"|KV cache is needed, which is larger",
        example="ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
    ),
    KnownFault(
        "picture-too-large",
        INSTANCES,
        "",
        "Too little device memory is left beside the KV cache, and a large picture takes much of it: one of 7952x5304 "
        "was seen to take too much.",
        "Lower gpu_memory_utilization (0.6 to 0.7 was seen to help), or have pictures made smaller "
        "(mm_processor_kwargs with max_pixels), " + START_AGAIN,
        MANUAL,
        retry=True,
        asked='"image"',
        served=True,
        signs=FULL,
        example="RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::46661632 (44.5)MB",
    ),
    KnownFault(
        "out-of-device-memory",
        INSTANCES,
        "",
        "The cards' memory is full.",
        "Too little of it is left beside the KV cache, for graphs and requests. Lower gpu_memory_utilization, raise "
        "graph_reserved_mem where the release reads it, or lower max_num_seqs or max_num_batched_tokens (the last "
        "resort is enforce_eager, which makes no graphs), " + START_AGAIN,
        "docs/features/quantization/calibration.md of vllm-gaudi, and public issues",
        remedies={
            "weights": "The weights do not fit on the cards. Raise tensor_parallel_size, or serve weights in FP8, "
            + START_AGAIN,
            "profiling": "The profiling run, a batch of the longest prompts, does not fit beside the weights. Lower "
            "max_model_len or the ranges, and max_num_batched_tokens, or raise tensor_parallel_size, " + START_AGAIN,
        },
        cases=True,
        signs=FULL,
        example="RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::46661632 (44.5)MB",
    ),
    KnownFault(
        "hcl-port-down",
        CARDS,
        "",
        "A port between the cards is down, so that HCL cannot use it.",
        "playbooks/accept.yml names the ports that are down, hl-smi -n link -i with a card's bus id those of one card. "
        "Internal ports: read dmesg | grep habanalabs, and load the driver's modules again; if one stays down, power "
        "the machine off and on, then have the card and its neighbours on the board checked. External ports are for "
        "other servers: check cable and switch.",
        "hcl_idevice.cpp and hcl_device.cpp of HCL 1.21 for a NIC that is down",
        retry=True,
        signs=r"\b[Pp]orts?(?:\(s\))? (?:[\d, ]{1,60} )?(?:(?:is|are) )?not (?:UP\b|up:)|\bNic\(\d{1,3}\) is DOWN\b"
        r"|\b(?:NIC|[Pp]ort) \d{1,3} is (?:down|DOWN)\b",
        example="hcl_idevice.cpp:497(allocateQp): The condition [ isNicUp(port) ] failed. Nic(9) is DOWN, can't "
        "allocate connection",
    ),
    KnownFault(
        "hcl-check-failed",
        CARDS,
        "",
        "A check of HCL failed, the vendor's library by which cards talk to each other.",
        "Its line says which. Check that driver and image are of one release (hl-smi), that all links are up "
        "(playbooks/accept.yml), and dmesg | grep habanalabs.",
        "HCL's own line; hccl_demo 46, a public issue",
        retry=True,
        signs=r"The condition \[ .{0,300}? \] failed\.",
        example="credit_manager.cpp:31(allocNextCredit): The condition [ prevTargetValue != targetValue ] failed. No "
        "available intermediate buffer",
    ),
)
