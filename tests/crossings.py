"""Every value that leaves the node that reports it: the table that docs/design.md speaks of.

A node that an attacker controls can report anything. A value that another node or the controller's disk receives has a
type and bounds, which are checked where it enters. tests/unit/test_crossings.py finds values that are missing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Names in `reads`, beside those of variables and filters.
FILES = "writes on the controller"
CONNECTS = "connects from the controller"
DELEGATED = "done by another node"
ONCE = "one node answers for all"
WHOLE = "all variables of a host"


@dataclass(frozen=True)
class Crossing:
    """One kind of value.

    source: the module, fact or job that reports it. target: what receives it, and what it decides there. bounds: its
    type and limits. checked: the file and the text in it that checks the value; None where it decides nothing and is
    only shown, or stored under the name that the inventory has for the node, by a task of this node alone. reads: in
    each file the variables, or filters, through which the value is read from another node's variables.
    """

    value: str
    source: str
    target: str
    bounds: str
    checked: tuple[str, str] | None
    reads: Mapping[str, tuple[str, ...]]


REPORTED = "module_utils/gaudi/base/reported.py"
SUPPLY = "roles/weights_supply/vars/main.yml"
CALIBRATION = "roles/fp8_calibration/vars/main.yml"
PAIRS = "roles/fabric_check/vars/main.yml"
AT_ONCE = "filter_plugins/nodes_at_once.py"

CROSSINGS = (
    # Images
    Crossing(
        "images that a node uses and lacks",
        "action serving_plan and module serving_image",
        "whether the node takes an image from the seed; the inventory chooses the seed",
        "list of at most 1024 references, each at most 255 characters; others are left out",
        ("module_utils/gaudi/fanout/images.py", "reported.images("),
        {"roles/serving_image/vars/main.yml": ("__serving_image_said",)},
    ),
    Crossing(
        "id of an image",
        "job image.share of the seed that the controller chose",
        "argument of the job image.load on the nodes of the seed's site, which compares the file with it",
        "sha256: and 64 hexadecimal digits",
        ("roles/serving_image/vars/main.yml", "reported('image_id')"),
        {"roles/serving_image/vars/main.yml": ("__serving_image_given",)},
    ),
    # Plans
    Crossing(
        "cards, reservations, last starts, weights and files of a node",
        "module node_report",
        "the plans of this node, which the controller makes; sources and images are the catalogue's",
        "each key of its type: whole numbers from 0 with a most, texts of at most 4096 characters without control "
        "characters, lists of at most 4096; config.json at most 3 MiB of text, a file at most 1 MiB; paths that were "
        "not asked for are left out; a sentence is one line of at most 2000 characters",
        ("module_utils/gaudi/planning/reported.py", "reported.part("),
        {},
    ),
    # Weights, and whatever is copied in the same way
    Crossing(
        "type and source of the file system of weights",
        "module node_report",
        "which nodes share storage, so that one of them writes for all",
        "a word of at most 64 characters; a line of at most 4096",
        (SUPPLY, "reported('storage')"),
        {SUPPLY: ("__weights_supply_said", "__weights_supply_conversion", "__weights_supply_reading")},
    ),
    Crossing(
        "whether a node had to be left out as a source",
        "job of the receiver: the files that it got are not those of the record, or not as pinned",
        "the source that the controller chose for this receiver gives nothing more in this run",
        "a host name that the controller sets; the node only decides whether",
        (SUPPLY, "__weights_supply_blamed"),
        {SUPPLY: ("__weights_supply_blames",)},
    ),
    Crossing(
        "why a node could not fetch a folder",
        "job of the node",
        "message of the nodes that wait for the folder",
        "one line of at most 2000 characters",
        (SUPPLY, "reported', 'sentence'"),
        {SUPPLY: ("__weights_supply_refused",)},
    ),
    Crossing(
        "addresses from which a node connects",
        "facts of the node",
        "list of clients in rsync's configuration on the node that gives; the token is needed as well",
        "at most 256 addresses of IPv4 and IPv6, without scopes (%eth0), no names",
        ("roles/weights_supply/tasks/addresses.yml", "reported('addresses')"),
        {SUPPLY: ("weights_supply_addresses", "ansible_facts")},
    ),
    Crossing(
        "address at which a node gives a folder",
        "facts of the node, where the inventory has no gaudi_weights_address",
        "request of the receiver; the port is the inventory's",
        "an address of IPv4, no name, neither loopback nor multicast nor reserved",
        ("roles/weights_supply/tasks/reached.yml", "reported('address')"),
        {SUPPLY: ("weights_supply_address",), "roles/fp8_calibration/tasks/take.yml": ("weights_supply_address",)},
    ),
    Crossing(
        "token of a transfer",
        "module weights_giving of the node that gives",
        "file that root alone can read, on the receiver",
        "20 to 200 letters, digits, - and _",
        ("roles/weights_supply/tasks/take.yml", "reported('token')"),
        {
            "roles/weights_supply/tasks/take.yml": ("weights_supply_given",),
            "roles/fp8_calibration/tasks/take.yml": ("weights_supply_given",),
        },
    ),
    Crossing(
        "record of a folder",
        "module weights_giving of the seed",
        "request of the receiver, whose job compares it with the pins and takes only names that stay in the folder",
        "mapping of at most 32 levels, texts of at most 4096 characters, finite numbers; for the receiver's job also "
        "an origin of one word each, sizes from 0, and no name twice",
        (SUPPLY, "reported('document')"),
        {SUPPLY: ("weights_supply_given",)},
    ),
    Crossing(
        "record of measurements for static FP8",
        "module weights_giving of the seed",
        "file that root alone can read, on the receiver, whose job publishes only the files of this record",
        "mapping as of a folder; for the receiver's job also the digest of its own weights and settings, the names "
        "that its plan expects and no other, each with its bytes and SHA-256",
        ("roles/fp8_calibration/tasks/take.yml", "reported('document')"),
        {"roles/fp8_calibration/tasks/take.yml": ("weights_supply_given",)},
    ),
    Crossing(
        "facts that a module returns",
        "modules that another node runs for the receiver",
        "facts of the node that returned them, never those of the receiver",
        "delegate_facts on each such task",
        ("roles/weights_supply/tasks/serve.yml", "delegate_facts: true"),
        {
            "roles/weights_supply/tasks/serve.yml": (DELEGATED,),
            "roles/weights_supply/tasks/in_turn.yml": (DELEGATED,),
            "roles/vllm_service/tasks/carry_turn.yml": (DELEGATED,),
        },
    ),
    Crossing(
        "compiled recipes that a node has and lacks",
        "module gaudi_preflight",
        "which node of a site gives a key: the first of the play that has it; the key names the folder",
        "at most 1024 keys, each one part of a path of at most 200 characters, with an instance; others are left out",
        ("module_utils/gaudi/fanout/recipes.py", "reported.recipes("),
        {
            "site.yml": ("|nodes_carrying_recipes", "|recipes_in_turn"),
            "playbooks/serve.yml": ("|recipe_shares",),
            "roles/vllm_service/tasks/carry.yml": ("|recipe_shares",),
            "roles/vllm_service/tasks/carry_ready.yml": ("|recipes_in_turn",),
        },
    ),
    Crossing(
        "whether a node has measurements for static FP8, or makes them",
        "module node_job, and the plan of an instance, of which the controller makes a digest",
        "which node of a site measures, and which one gives: nodes with one digest count as asking for the same, so a "
        "node can claim that, and send what it measured (SECURITY.md)",
        "two truth values; a SHA-256; the storage as above",
        (CALIBRATION, "reported('storage')"),
        {CALIBRATION: ("__fp8_calibration_said",)},
    ),
    # Runs over two nodes
    Crossing(
        "cards, address and port of a node for runs over two nodes",
        "module fabric_pair, before a run",
        "which nodes meet, and where the second one connects; test and limit follow from inventory and catalogue",
        "card type of the catalogue, at most 256 ids, an address of IPv4 that no other node reports, and one of "
        "ansible_host where the controller can resolve that to another machine; a port from 1024",
        ("roles/fabric_check/tasks/pairs.yml", "reported('pair')"),
        # The facts that are made of these once count for all nodes.
        {PAIRS: ("__fabric_check_report",), "roles/fabric_check/tasks/pairs.yml": (ONCE,)},
    ),
    Crossing(
        "result of a half of a run",
        "module fabric_pair",
        "verdict on the pairs of this node, and whether later rounds ask for Gaudi Direct",
        "none or 0 to 10000 GB/s, a line of at most 2000 characters, a truth value",
        ("roles/fabric_check/tasks/halves.yml", "reported('half')"),
        {PAIRS: ("__fabric_check_halves",), "roles/fabric_check/tasks/round.yml": (ONCE,)},
    ),
    Crossing(
        "verdict of a node",
        "modules fabric_check and fabric_pair",
        "page on the controller, at a path of the operator, under the node's name in the inventory",
        "form of a verdict and of its compute check, at most 32 levels, 128 measurements of at most 32 cards and 20 "
        "earlier verdicts, links of two cards, finite numbers; another one is left out with a "
        "warning. What the program of that check prints is bounded before it is in a verdict (fabric/compute.py)",
        ("filter_plugins/acceptance.py", "reported.document("),
        {
            PAIRS: ("__fabric_check_seen", "fabric_check_found"),
            "roles/fabric_check/tasks/page.yml": (FILES,),
            "roles/fabric_check/tasks/pairs.yml": (FILES,),
        },
    ),
    # The order of a run
    Crossing(
        "whether a node gets a driver, or an instance of it restarts",
        "module gaudi_preflight",
        "whether nodes change one at a time, and whether the run waits before the next one",
        "truth values; names of hosts are the inventory's",
        (AT_ONCE, "bool((node.get("),
        {
            "site.yml": ("|nodes_at_once", "|nodes_without_driver"),
            "playbooks/tasks/turn.yml": ("|changed_before",),
            "roles/vllm_service/tasks/carry_ready.yml": ("|nodes_at_once",),
        },
    ),
    Crossing(
        "whether an image cannot serve an instance of a node",
        "module serving_image",
        "whether this node fails at the end",
        "truth value",
        (AT_ONCE, "bool(node.get("),
        {"site.yml": ("|nodes_refusing",)},
    ),
    Crossing(
        "weights that a node lacks, and its address",
        "module gaudi_preflight",
        "which folders the nodes of the play look for, and whether the nodes of its site need an address",
        "names of folders that the controller planned for this node; another name fails the node",
        ("module_utils/gaudi/fanout/supply.py", "weights_not_planned"),
        {
            "site.yml": ("|weights_wanted",),
            "playbooks/serve.yml": ("|weights_wanted",),
            "roles/preflight/vars/main.yml": ("|weights_fault",),
        },
    ),
    # Instances
    Crossing(
        "instances that serve the model of a batch",
        "modules node_report and batch_answers",
        "which node answers the batch: the first of the play; the name is an argument on this node alone",
        "at most 1024 names of at most 48 of a-z, 0-9 and -, a truth value, 1024 lines of 2000 characters",
        ("module_utils/gaudi/batch/here.py", "instance(one.get("),
        {
            "roles/offline_batch/vars/main.yml": ("__offline_batch_report",),
            "roles/offline_batch/tasks/preflight.yml": ("__offline_batch_report",),
        },
    ),
    Crossing(
        "answers of a batch",
        "module batch_answers",
        "one file on the controller, at the operator's path, in parts",
        "parts of 8 MiB; the checksum has to fit",
        ("action_plugins/batch_answers.py", "unpacked("),
        {"action_plugins/batch_answers.py": (FILES,)},
    ),
    Crossing(
        "result of a benchmark",
        "module slurp, of a file that bench.py has written",
        "files on the controller in the node's own folder; the name of a run is part of their names",
        "the form of a name of a run",
        ("filter_plugins/benchmark.py", "def benchmark_run("),
        {"roles/benchmark/tasks/show.yml": (FILES,)},
    ),
    Crossing(
        "address and port of an instance",
        "action serving_plan, and module vllm_service_reach where the inventory has a loopback address",
        "one connection of the controller, which sends GET /health and nothing else",
        "a host name, or an address that is not link-local, multicast or reserved, a port from 1, an instance's name; "
        "a name is resolved once; neither loopback, nor the others of these, nor the controller's own is connected to",
        ("action_plugins/vllm_service_reach.py", "is_routable("),
        {"action_plugins/vllm_service_reach.py": (CONNECTS,), "plugin_utils/resolving.py": (CONNECTS,)},
    ),
    Crossing(
        "names of instances, and of their keys",
        "modules vllm_service_info and instance_keys",
        "whether a name that the operator gave exists somewhere; a key is added and revoked on each node by itself",
        "at most 1024 instances of at most 48 of a-z, 0-9 and -, and keys with dot and _ as well; others are left out; "
        "a truth value or none for each node",
        ("roles/vllm_service/tasks/select.yml", "map('reported', 'instances')"),
        {
            "roles/vllm_service/tasks/select.yml": ("__vllm_service_here",),
            "playbooks/bench.yml": ("bench_here",),
            "playbooks/keys.yml": ("keys_here",),
        },
    ),
    Crossing(
        "keys as entries of the inventory",
        "module instance_keys",
        "text on the terminal, which a person pastes into the inventory: Ansible would run an expression in it",
        "at most 1024 texts: sha256: and 64 hexadecimal digits, perhaps a key's name, perhaps an end in UTC; a person "
        "compares keys that only some nodes report",
        ("playbooks/keys.yml", "keys_now.exported | api_keys_exported(inventory_hostname)"),
        {},
    ),
    Crossing(
        "texts of a record, and what names the node",
        "module node_record_info",
        "files in an archive on the controller, and words that are removed from the texts of all nodes of the run",
        "at most 1000 texts, 16 MiB together and 4 MiB each, printable; at most 512 values a kind, each a printable "
        "line of at most 255 characters; names of files are made of letters, digits and .,=+-_",
        ("module_utils/gaudi/doctor/archive.py", 'recorded.texts_of(report.get("texts"))'),
        {"playbooks/record.yml": ("node_record",), "action_plugins/record_archive.py": (FILES,)},
    ),
    # Shown, or written as it is, under the node's name
    Crossing(
        "state, findings, settings and images of all nodes",
        "modules that only read",
        "a page on the terminal; a JSON file on the controller, at the operator's path",
        "in the file at most 32 levels, 100000 keys and values and 16 MiB of text a node, finite numbers; a node "
        "with another report is left out with a warning. No name or path is the node's",
        ("filter_plugins/checked.py", "reports.on_page(value)"),
        {
            "playbooks/doctor.yml": ("doctor_found", FILES),
            "playbooks/image.yml": ("image_found", FILES),
            "playbooks/status.yml": ("node", FILES),
            "roles/host_tuning/tasks/verify.yml": ("host_tuning_found", FILES),
        },
    ),
    Crossing(
        "why a program failed, by its log",
        "a log on the controller, from anywhere",
        "a page on the terminal; a JSON file on the controller, at the operator's path",
        "at most 32 MiB of text; of it at most three lines of 300 characters and a sentence are shown, printable. No "
        "name or path is the log's",
        ("module_utils/gaudi/doctor/log_file.py", "line = printable(part)"),
        {"action_plugins/explain_log.py": (FILES,)},
    ),
    Crossing(
        "plans and support bundle of a node",
        "modules that only read",
        "a page on the terminal; a JSON file or a text on the controller, at the operator's path",
        "content alone; no name or path is the node's",
        None,
        {"playbooks/plan.yml": (FILES,), "playbooks/tasks/bundle.yml": (FILES,)},
    ),
)

# What no node reports: variables of other hosts that the inventory alone sets, and packages of modules.
INVENTORY = {
    "plugin_utils/packaged_modules.py": (FILES,),
    "playbooks/pin.yml": (WHOLE,),
    "playbooks/plan.yml": (WHOLE,),
    "roles/serving_image/vars/main.yml": ("gaudi_weights_site",),
}
