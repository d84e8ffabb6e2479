"""The test that proves each command of the stock client. Start reading at `PROOFS`."""

from stock import StockClient
from support import FAILED

MODULES = {
    "clusters": "test_stock_client", "volumes": "test_stock_client_storage", "objects": "test_stock_client_objects",
    "account": "test_stock_client_account", "jobs": "test_stock_client_jobs", "instances": "test_stock_client_instances",
    "conformance": "conformance.test_jobs",
}  # fmt: skip
# For each command a test that it works, and tests that it is refused: for a wrong id or name, and in a wrong state. A
# command without arguments can only have a wrong key, which is tested with every command. `verify_proofs` checks that
# the named tests do so.
PROOFS = {
    "cluster create": ("clusters::cluster_create_list_info_destroy", "clusters::create_refusals"),
    "cluster destroy": (
        "clusters::cluster_create_list_info_destroy", "clusters::wrong_ids_are_refused",
        "clusters::edit_changes_name_and_protection",
        "clusters::destroyed_cluster_is_read_only",
    ),
    "cluster list": ("clusters::cluster_create_list_info_destroy",),
    "cluster info": ("clusters::cluster_create_list_info_destroy", "clusters::wrong_ids_are_refused"),
    "cluster edit": (
        "clusters::edit_changes_name_and_protection", "clusters::edit_refusals",
        "clusters::destroyed_cluster_is_read_only",
    ),
    "cluster attach": (
        "volumes::attach_and_detach", "volumes::wrong_ids_are_refused", "volumes::destroyed_volume_is_read_only",
    ),
    "cluster detach": (
        "volumes::attach_and_detach", "volumes::wrong_ids_are_refused", "volumes::destroyed_volume_is_read_only",
    ),
    "storage create": ("volumes::create_without_wait_names_volume", "volumes::volume_refusals"),
    "storage destroy": (
        "volumes::volume_create_edit_destroy", "volumes::wrong_ids_are_refused",
        "volumes::destroyed_volume_is_read_only",
    ),
    "storage list": ("volumes::volume_create_edit_destroy",),
    "storage info": ("volumes::volume_create_edit_destroy", "volumes::wrong_ids_are_refused"),
    "storage edit": (
        "volumes::volume_create_edit_destroy", "volumes::wrong_ids_are_refused",
        "volumes::destroyed_volume_is_read_only",
    ),
    "object-storage enable": ("objects::enable_shows_credentials", "objects::user_without_organization_is_refused"),
    "object-storage disable": (
        "objects::disable_revokes_credentials", "objects::commands_before_enable_are_refused",
        "objects::user_without_organization_is_refused",
    ),
    "object-storage credentials": ("objects::enable_shows_credentials", "objects::commands_before_enable_are_refused"),
    "object-storage configure rclone": (
        "objects::configure_rclone_writes_section", "objects::commands_before_enable_are_refused",
    ),
    "object-storage bucket list": ("objects::bucket_create_list_delete", "objects::commands_before_enable_are_refused"),
    "object-storage bucket create": (
        "objects::bucket_create_list_delete", "objects::bucket_refusals", "objects::commands_before_enable_are_refused",
    ),
    "object-storage bucket delete": (
        "objects::bucket_create_list_delete", "objects::bucket_refusals", "objects::commands_before_enable_are_refused",
    ),
    "job init": ("jobs::init_writes_pushable_file",),
    "job push": (
        "conformance::job_push_listen_pull_delete", "jobs::missing_or_foreign_jobs_are_refused",
        "jobs::teardown_of_protected_cluster_is_refused",
    ),
    "job list": ("conformance::job_push_listen_pull_delete",),
    "job info": ("conformance::job_push_listen_pull_delete", "jobs::missing_or_foreign_jobs_are_refused"),
    "job cancel": ("jobs::cancel_ends_job", "jobs::missing_or_foreign_jobs_are_refused", "jobs::cancel_ends_job"),
    "job delete": (
        "conformance::job_push_listen_pull_delete", "jobs::missing_or_foreign_jobs_are_refused",
        "jobs::cancel_ends_job",
    ),
    "job listen": (
        "conformance::job_push_listen_pull_delete", "jobs::missing_or_foreign_jobs_are_refused",
        "jobs::failed_job_is_reported",
    ),
    "job pull": ("conformance::job_push_listen_pull_delete", "jobs::missing_or_foreign_jobs_are_refused"),
    "ssh": (
        "instances::key_to_shell_and_destroy", "clusters::wrong_ids_are_refused",
        "instances::ssh_to_destroyed_instance_is_refused",
    ),
    "me": ("account::me_shows_caller",),
    "me sshkey add": ("account::sshkey_add_list_remove", "account::sshkey_refusals"),
    "me sshkey list": ("account::sshkey_add_list_remove",),
    "me sshkey remove": ("account::sshkey_add_list_remove", "account::sshkey_refusals"),
    "me preferences": ("account::preferences_are_allowed",),
}  # fmt: skip


def verify_proofs(client: StockClient, request):
    """The body of a fixture that gives the client to a test, which must then have shown what `PROOFS` claims."""
    yield client
    if not request.node.stash[FAILED]:
        missing = claimed_proofs(request.module.__name__, request.node.originalname) - client.shown
        assert not missing, f"PROOFS claims that {request.node.name} shows this of the stock client, and it did not: {missing}"


def claimed_proofs(module: str, name: str) -> set[tuple[str, str]]:
    """What `PROOFS` claims that a test shows."""
    shown = set()
    for command, (works, *refused) in PROOFS.items():
        shown |= {(command, "works")} if proof_location(works) == (module, name) else set()
        shown |= {(command, "refused")} if (module, name) in map(proof_location, refused) else set()
    return shown


def proof_location(proof: str) -> tuple[str, str]:
    """The module and the name of the test of a proof."""
    module, name = proof.split("::")
    return MODULES[module], f"test_{name}"
