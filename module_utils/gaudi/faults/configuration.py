"""Known faults of what a server was given: options, a port, weights. A part of the list in known.py."""

from __future__ import annotations

from .entry import INSTANCES, KnownFault
from .shared import START_AGAIN

FAULTS = (
    KnownFault(
        "unknown-argument",
        INSTANCES,
        "",
        "This release does not know, or does not take, what it was given.",
        "Correct it or leave it out: options differ between releases. For an instance of this project plan and image "
        "are of different releases, or extra_args or extra_environment is wrong.",
        "argparse, and vLLM's own words",
        signs=r"error: .* knows no |error: unrecognized arguments|error: argument \S+: "
        r"|error: the following arguments|(?i:unknown|unrecognized|unsupported) (?:argument|option"
        r"|variable|environment variable)s?\b",
        example="api_server.py: error: unrecognized arguments: --swap-space 4",
    ),
    KnownFault(
        "model-len-too-long",
        INSTANCES,
        "",
        "The request's max_model_len is more than the model's config.json allows.",
        "Lower max_model_len to what the line names, or leave it out. A model that takes longer prompts with scaled "
        "positions says so on its page: give it that rope scaling (hf_overrides).",
        "_get_and_verify_max_len in vllm/config",
        signs=r"max_model_len \(?\S{1,20} is greater than the derived max_model_len",
        example="ValueError: User-specified max_model_len (65536) is greater than the derived max_model_len "
        "(max_position_embeddings=40960 or model_max_length=None in model's config.json).",
    ),
    KnownFault(
        "refused-configuration",
        INSTANCES,
        "",
        "The server refuses what it is asked for.",
        "Correct the option that the line names, " + START_AGAIN,
        "pydantic, which vllm/config is made of",
        signs=r"(?:^|\) ) *Value error, |must be divisible by tensor parallel size"
        r"|max_num_batched_tokens \(\d{1,9}\) (?:is smaller|must be)|invalid (?:tool call|reasoning) parser"
        r"|Unknown quantization method: |Quantization method specified in the model config",
        example="  Value error, max_model_len is larger than the model takes",
    ),
    KnownFault(
        "not-divisible",
        INSTANCES,
        "",
        "The server divides a dimension of the model by the number of cards, and a rest remains.",
        "Set tensor_parallel_size to a number that divides it. playbooks/plan.yml -e every_release=true -e "
        "model_config=FILE names the numbers of cards that work for a config.json.",
        "ensure_divisibility in vllm/distributed/utils.py",
        signs=r"AssertionError: \d{1,9} is not divisible by \d{1,4}\b",
        example="AssertionError: 151655 is not divisible by 4",
    ),
    KnownFault(
        "chat-template-missing",
        INSTANCES,
        "",
        "The server cannot read the chat template.",
        "Put the template where the container sees it, beside the weights, and correct the path (--chat-template in "
        "extra_args) or what the line says of its text, " + START_AGAIN,
        "load_chat_template in vllm/entrypoints or vllm/renderers/chat_utils.py",
        signs=r"The supplied chat template .*(?:path-like|looks like a file path), but"
        r"|jinja2\.exceptions\.Template(?:Syntax|Assertion)Error",
        example="ValueError: The supplied chat template (/t.jinja) looks like a file path, but it cannot be opened.",
    ),
    KnownFault(
        "no-chat-template",
        INSTANCES,
        "",
        "The model has no chat template: it is a base model, or the file of its template is missing.",
        "Take the model's variant for chats (Instruct), or fetch tokenizer_config.json and chat_template.jinja again "
        "if its repository has one. Else give a server --chat-template FILE (extra_args), or ask it at "
        "/v1/completions, which needs none. A calibration needs a model with one.",
        "apply_chat_template of transformers",
        signs=r"default chat template is no longer allowed|tokenizer\.chat_template is not set",
        example="ValueError: Cannot use chat template functions because tokenizer.chat_template is not set and no "
        "template argument was passed!",
    ),
    KnownFault(
        "rendezvous-port-taken",
        INSTANCES,
        "",
        "Another process has the port at which the processes of this server find each other (torch's rendezvous, "
        "MASTER_PORT). It is not the port of the API.",
        "ss -ltnp shows who has it, often a process of an earlier start: end it. Where several servers run on a host "
        "give each its own port: VLLM_PORT for vLLM, MASTER_PORT for what torchrun or a script starts.",
        "torch's TCPStore; vllm 39015, torchtune 1025 and FastVideo 575, public issues",
        retry=True,
        signs=r"server socket has failed to (?:listen|bind)\b.{0,300}(?:EADDRINUSE|errno: 98\b|already in use)"
        r"|\b(?:TCPStore|MASTER_PORT|29500)\b.{0,200}(?:EADDRINUSE|already in use)",
        example="torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
        "address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    ),
    KnownFault(
        "port-taken",
        INSTANCES,
        "",
        "Another process took the port.",
        "Stop it, or give the instance another port.",
        "uvicorn",
        retry=True,
        remedies={"instance": "Stop it (systemctl stop vllm-{other}), or give one of the two another port."},
        signs=r"\[Errno 98\]|[Aa]ddress already in use|port is already allocated",
        example="OSError: [Errno 98] Address already in use",
    ),
    KnownFault(
        "processes-not-connected",
        INSTANCES,
        "",
        "The server's processes do not reach each other over the network.",
        "Have the host's own name resolve to an address that it has (getent hosts $(hostname)), or name the interface "
        "and the address: GLOO_SOCKET_IFNAME, HCCL_SOCKET_IFNAME, VLLM_HOST_IP. A firewall must let the host talk to "
        "itself. Where a process of the server ended before, read why that ended.",
        "torch.distributed and Gloo",
        retry=True,
        consequence=True,
        signs=r"[Gg]loo connectFullMesh failed|gloo/transport/tcp|client socket has (?:timed out|failed to connect)"
        r"|Timed out initializing process group|Unable to resolve hostname to a .{0,20}address",
        example="RuntimeError: Gloo connectFullMesh failed with [/gloo/transport/tcp/pair.cc:144] no error",
    ),
    KnownFault(
        "port-forbidden",
        INSTANCES,
        "",
        "The user who runs the server may not listen at this port: those below 1024 are for root.",
        "Give the server a port from 1024 on; a proxy or a published port of the container (docker run -p 80:8000) may "
        "have the low one.",
        "the kernel: EACCES of bind, ip_unprivileged_port_start",
        signs=r"\[Errno 13\] error while attempting to bind|failed to bind to \S{1,80} \(errno: 13\b"
        r"|\blisten \w{1,5} \S{1,80}: bind: permission denied",
        example="PermissionError: [Errno 13] error while attempting to bind on address ('0.0.0.0', 80): permission "
        "denied",
    ),
    KnownFault(
        "path-forbidden",
        INSTANCES,
        "",
        "The server may not read or write a path that it was given.",
        "Give it to the user who runs the server, and mount it for writing where the server writes there (its cache: "
        "HF_HOME), " + START_AGAIN,
        "the kernel: EACCES",
        signs=r"PermissionError: \[Errno 13\](?! error while attempting to bind)",
        example="PermissionError: [Errno 13] Permission denied: '/data/hub'",
    ),
    KnownFault(
        "address-missing",
        INSTANCES,
        "",
        "The server is to listen at an address that this host does not have.",
        "Correct host, or give the address to an interface first (ip address).",
        "the kernel: EADDRNOTAVAIL",
        signs=r"\[Errno 99\]|Cannot assign requested address",
        example="OSError: [Errno 99] Cannot assign requested address",
    ),
    KnownFault(
        "tokenizer",
        INSTANCES,
        "",
        "The tokenizer cannot be loaded: files of it are missing or damaged, or the libraries of this release do not "
        "know their form.",
        "Compare the folder with the repository (tokenizer.json, tokenizer_config.json, tokenizer.model), and fetch "
        "again what differs. If it is complete, serve it with a newer release.",
        "transformers and tokenizers",
        signs=r"untagged enum \w*(?:Wrapper|Tokenizer)|Couldn't instantiate the backend tokenizer"
        r"|Can't load tokenizer for|Tokenizer class \S+ does not exist",
        example="Exception: data did not match any variant of untagged enum ModelWrapper at line 757482 column 3",
    ),
    KnownFault(
        "weights-incomplete",
        INSTANCES,
        "",
        "The weights are incomplete or damaged.",
        "Fetch them again or verify their checksums.",
        "safetensors and transformers",
        signs=r"SafetensorError|MetadataIncompleteBuffer|InvalidHeaderDeserialization|HeaderTooLarge"
        r"|UnpicklingError: |PytorchStreamReader failed"
        r"|Cannot find any model weights|does not appear to have a file named"
        r"|No such file or directory: .*\.(?:safetensors|json|bin)",
        example="safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
    ),
    KnownFault(
        "pipeline-parallel",
        INSTANCES,
        "",
        "With pipeline parallelism a worker that is not the last returns no tokens, and this server expects them from "
        "all.",
        "Leave --pipeline-parallel-size out, and use the cards of one node (tensor_parallel_size).",
        "vllm-gaudi 728, a public issue; plans of this project are refused with it",
        signs=r"'NoneType' object has no attribute 'sampled_token_ids'",
        example="AttributeError: 'NoneType' object has no attribute 'sampled_token_ids'",
    ),
)
