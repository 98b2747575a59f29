"""Known faults of a hub that a server asks by itself. A part of the list in known.py."""

from __future__ import annotations

from .entry import INSTANCES, KnownFault

FAULTS = (
    # A hub that the server asks by itself: huggingface_hub's errors, and what transformers and datasets say of them.
    KnownFault(
        "hub-gated",
        INSTANCES,
        "",
        "The hub gives this repository only to accounts that have accepted its licence, and the server asked without a "
        "token, or with one of another account.",
        "Accept the licence on the repository's page with the account of the token. Then fetch the weights with that "
        "token (docs/weights.md, Sources) and serve the folder: its server asks no hub.",
        "tgi-gaudi 93, a public issue; huggingface_hub/errors.py",
        signs=r"GatedRepoError|[Cc]annot access gated repo|[Yy]ou are trying to access a gated repo"
        r"|\bis (?:restricted|gated)\. You must (?:have access to it|be authenticated)"
        r"|(?:is restricted and )?you are not in the authorized list",
        example="huggingface_hub.errors.GatedRepoError: 401 Client Error.",
    ),
    KnownFault(
        "weights-path-missing",
        INSTANCES,
        "",
        "The server finds no folder at the path that it was given, and takes the path for a name on a hub.",
        "Correct the path. In a container it has to be the path there: mount the folder of the weights (plans of this "
        "project do).",
        "huggingface_hub/utils/_validators.py and transformers/utils/hub.py",
        signs=r"HFValidationError|Repo id must (?:be in the form|use alphanumeric)|Incorrect path_or_model_id",
        example="huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or "
        "'namespace/repo_name': '/models/x'.",
    ),
    KnownFault(
        "hub-forbidden",
        INSTANCES,
        "",
        "The hub knows the token, and does not let it read this repository.",
        "Give the token the right to read it: for a fine-grained one in its settings, gated repositories included. "
        "Then fetch the weights with it (docs/weights.md, Sources), and serve the folder.",
        "huggingface_hub/utils/_http.py",
        signs=r"^(?!.*\b(?:pull|daemon|registry)\b).*\b403 (?:Client Error: )?Forbidden"
        r"|fine-grained token settings|token has the correct permissions",
        example="huggingface_hub.errors.HfHubHTTPError: 403 Forbidden: Please enable access to public gated "
        "repositories in your fine-grained token settings to view this repository.",
    ),
    KnownFault(
        "hub-not-found",
        INSTANCES,
        "",
        "The hub knows no such repository, file or revision, or does not show it to this account: it answers the same "
        "for a private repository.",
        "Compare the name with the repository's page. Give a token that may read it, or serve a folder of the node "
        "(docs/weights.md).",
        "huggingface_hub/errors.py and transformers/utils/hub.py",
        signs=r"(?:Repository|Revision|\bEntry)NotFoundError|modelscope\.\S+\.NotExistError|(?:Repository"
        r"|Revision|Entry) Not Found for url|is not a local folder and is not a valid model identifier"
        r"|401 Client Error: Unauthorized for url|Invalid (?:username or password|user token|credentials in Auth)",
        example="huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. (Request ID: Root=1-a;b)",
    ),
    KnownFault(
        "hub-busy",
        INSTANCES,
        "",
        "The hub answers this address no further for now: too many requests.",
        "Wait some minutes. Fetch the weights once, and serve the folder (docs/weights.md): then no start asks "
        "the hub.",
        "huggingface_hub, which quotes HTTP's status 429",
        retry=True,
        signs=r"429 Client Error|429 Too Many Requests|[Ww]e had to rate limit your IP",
        example="huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: "
        "https://huggingface.co/api/models/a/b",
    ),
    KnownFault(
        "hub-offline",
        INSTANCES,
        "",
        "The server may not ask a hub (HF_HUB_OFFLINE), and what it looks for is neither a folder of the container nor "
        "in its cache.",
        "Fetch the weights, and name the folder (docs/weights.md). Where a folder is named, mind its spelling.",
        "huggingface_hub/errors.py: OfflineModeIsEnabled",
        signs=r"OfflineModeIsEnabled|[Oo]ffline mode is enabled|outgoing traffic has been disabled"
        r"|HF_HUB_OFFLINE=1|to run the library in offline mode",
        example="huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach https://huggingface.co/api/models/a/b: "
        "offline mode is enabled. To disable it, please unset the `HF_HUB_OFFLINE` environment variable.",
    ),
    KnownFault(
        "hub-certificate",
        INSTANCES,
        "",
        "The server does not trust the certificate of its hub, as behind a proxy that reads what passes.",
        "Fetch the weights with gaudi_ca_certificates set, and serve the folder: its server asks no hub "
        "(docs/network.md). In another container name the certificates with SSL_CERT_FILE and REQUESTS_CA_BUNDLE.",
        "the ssl module of Python",
        # pip says the same of its index.
        signs=r"^(?!.*(?:connection broken by|Could not fetch URL)).*CERTIFICATE_VERIFY_FAILED",
        example="ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed "
        "certificate in certificate chain",
    ),
    KnownFault(
        "hub-unreachable",
        INSTANCES,
        "",
        "The server does not reach its hub.",
        "Fetch the weights through the site's proxy or mirror (docs/weights.md), and serve the folder: its server asks "
        "no hub. A data set for a calibration is named with fp8_calibration_dataset.",
        "transformers/utils/hub.py, datasets/load.py, and urllib3",
        retry=True,
        signs=r"[Ww]e couldn't connect to '|CAS service error|Couldn't reach '?\S+'? on the Hub|LocalEntryNotFoundError"
        r"|(?:host='|://)(?:[\w.-]+\.)?(?:huggingface\.co|hf\.co|hf-mirror\.com|modelscope\.cn)\b.*"
        r"(?:Max retries exceeded|[Tt]imed out|resol(?!ve/)|refused|unreachable|SSLError|ProxyError)",
        example="OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in "
        "the cached files.",
    ),
)
