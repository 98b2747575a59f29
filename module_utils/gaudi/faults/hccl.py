"""Known faults of a run of hccl_demo. A part of the list in known.py.

A cause comes before its consequences. ``it`` in a sentence is what the groups of ``signs`` match.
"""

from __future__ import annotations

from .entry import CARDS, Known

# A word of its command: elsewhere these lines mean something else, or nothing.
_DEMO = "hccl_demo"
_SOURCE = "hccl_demo f623d69 of 2025-10-09, and HCL"

FAULTS = (
    Known(
        "hccl-wrong-result",
        CARDS,
        "",
        "The collective computed wrong sums: a card or a link damages data, whatever bandwidth was printed.",
        "Do not serve from these cards; find the card with halves and pairs, and have it replaced.",
        _SOURCE,
        asked=_DEMO,
        signs=r"failed on correctness|which is bad\.",
        example="HCCL demo error: all_reduce failed on correctness",
    ),
    Known(
        "hccl-affinity",
        CARDS,
        "",
        "No NUMA nodes of the cards were found by hccl_demo ({it}).",
        "That is so in a virtual machine; on bare metal remove its cache, /tmp/affinity_topology_output, and look at "
        "hl-smi topo -c -N.",
        _SOURCE,
        asked=_DEMO,
        signs=r"(Affinity: [^\n]{0,200}?aborting)|Affinity setting for HCCL demo failed|\[handle_affinity\]",
        example="Affinity: no NUMA node of a card is known, aborting",
    ),
    Known(
        "hccl-queue-pair",
        CARDS,
        "",
        "The cards' network reported a queue pair error. The usual cause is a stale gaudinet.json, or a card with a "
        "link down.",
        "Compare /etc/habanalabs/gaudinet.json with the cards' addresses.",
        _SOURCE,
        retry=True,
        asked=_DEMO,
        signs=r"Source:\s*QPC|QPC,? error",
        example="QPC error on port 3",
    ),
    Known(
        "hccl-gaudi-direct",
        CARDS,
        "",
        "Gaudi Direct cannot be used: {it}.",
        "Load ib_uverbs (the kernel must have ib_umem_dmabuf_get), and build libfabric 1.20 or later with the vendor's "
        "headers.",
        _SOURCE,
        asked=_DEMO,
        signs=r"(Gaudi-?[Dd]irect not supported[^\n]{0,200})",
        example="Gaudi-direct not supported due to libfabric version 1.17",
    ),
    Known(
        "hccl-no-provider",
        CARDS,
        "",
        "No provider of libfabric can be used by HCL ({it}).",
        "Look at fi_info in the image.",
        _SOURCE,
        asked=_DEMO,
        signs=r"(Could not find any matching provider[^\n]{0,120})",
        example="Could not find any matching provider for verbs",
    ),
    Known(
        "hccl-no-wrapper",
        CARDS,
        "",
        "HCL could not load libhccl_ofi_wrapper.so, so that it went on without host NICs.",
        "Build the image with the part host_nics.",
        _SOURCE,
        asked=_DEMO,
        signs=r"(Error loading OFI wrapper)",
        example="Error loading OFI wrapper",
    ),
    Known(
        "hccl-no-host",
        CARDS,
        "",
        "A node of the run could not be reached: {it}.",
        "Have the nodes resolve each other's names, or name addresses (fabric_check_address).",
        _SOURCE,
        retry=True,
        asked=_DEMO,
        signs=r"(ssh: Could not resolve hostname [^\n]{1,100})",
        example="ssh: Could not resolve hostname gaudi-02: Name or service not known",
    ),
    Known(
        "hccl-arguments",
        CARDS,
        "",
        "The run was refused by hccl_demo: {it}.",
        "Correct the test, the size or the number of ranks (fabric_check_tests).",
        _SOURCE,
        asked=_DEMO,
        signs=r"\[validate_(?:arguments|size)\] ([^\n]{1,200})",
        example="[validate_arguments] size must be a multiple of 4",
    ),
    Known(
        "hccl-demo-not-built",
        CARDS,
        "",
        "The image has no hccl_demo that runs ({it}).",
        "Build one of the same base with it.",
        _SOURCE,
        asked=_DEMO,
        signs=r"(No such file or directory[^\n]{0,40}run_hccl_demo|can't open file "
        r"[^\n]{0,100}run_hccl_demo|\[make_demo\] The following make command has failed)",
        example="[make_demo] The following make command has failed",
    ),
    Known(
        "hccl-collective-failed",
        CARDS,
        "",
        "A collective operation failed: {it}.",
        "Look at dmesg | grep habanalabs, and at the run's log.",
        _SOURCE,
        retry=True,
        asked=_DEMO,
        signs=r"In function \w{1,60}\(\): (hccl[^\n]{1,160}? failed: [^\n]{1,120})",
        example="In function hcclAllReduceWrapper(): hcclAllReduce(a) failed: hcclInternalError",
    ),
    Known(
        "hccl-synapse-error",
        CARDS,
        "",
        "The card's software failed: {it}.",
        "Look at dmesg | grep habanalabs.",
        _SOURCE,
        retry=True,
        asked=_DEMO,
        signs=r"In function \w{1,60}\(\): ([^\n]{1,160}? failed with synapse error: [0-9]{1,6})",
        example="In function initDevice(): synStreamCreate(&stream) failed with synapse error: 1",
    ),
)
