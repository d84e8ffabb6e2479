"""Which test shows what of each command of the stock client. Start reading at `PROOFS`."""

from stock import StockClient
from support import FAILED

MODULES = {
    "clusters": "test_stock_client", "volumes": "test_stock_client_storage", "objects": "test_stock_client_objects",
    "account": "test_stock_client_account", "jobs": "test_stock_client_jobs", "instances": "test_stock_client_instances",
    "conformance": "conformance.test_jobs",
}  # fmt: skip
# For each command a test that it works, and tests that it is refused: for a wrong id or name, and in a wrong state. One
# that takes nothing can only have a wrong key, and that is tried with every command. Who is named here is held to it.
PROOFS = {
    "cluster create": ("clusters::a_cluster_lives_and_ends", "clusters::what_cannot_be_created"),
    "cluster destroy": (
        "clusters::a_cluster_lives_and_ends", "clusters::wrong_ids", "clusters::edit_and_deletion_protection",
        "clusters::what_is_over",
    ),
    "cluster list": ("clusters::a_cluster_lives_and_ends",),
    "cluster info": ("clusters::a_cluster_lives_and_ends", "clusters::wrong_ids"),
    "cluster edit": ("clusters::edit_and_deletion_protection", "clusters::edit_refuses", "clusters::what_is_over"),
    "cluster attach": ("volumes::attach_and_detach", "volumes::wrong_ids", "volumes::what_is_over"),
    "cluster detach": ("volumes::attach_and_detach", "volumes::wrong_ids", "volumes::what_is_over"),
    "storage create": ("volumes::create_without_waiting_says_the_id", "volumes::what_is_refused"),
    "storage destroy": ("volumes::a_volume_lives_and_ends", "volumes::wrong_ids", "volumes::what_is_over"),
    "storage list": ("volumes::a_volume_lives_and_ends",),
    "storage info": ("volumes::a_volume_lives_and_ends", "volumes::wrong_ids"),
    "storage edit": ("volumes::a_volume_lives_and_ends", "volumes::wrong_ids", "volumes::what_is_over"),
    "object-storage enable": ("objects::enable_shows_credentials_that_work", "objects::without_an_organization"),
    "object-storage disable": ("objects::disable", "objects::before_it_is_enabled", "objects::without_an_organization"),
    "object-storage credentials": ("objects::enable_shows_credentials_that_work", "objects::before_it_is_enabled"),
    "object-storage configure rclone": (
        "objects::configure_rclone_writes_its_section", "objects::before_it_is_enabled",
    ),
    "object-storage bucket list": ("objects::buckets", "objects::before_it_is_enabled"),
    "object-storage bucket create": (
        "objects::buckets", "objects::buckets_that_are_refused", "objects::before_it_is_enabled",
    ),
    "object-storage bucket delete": (
        "objects::buckets", "objects::buckets_that_are_refused", "objects::before_it_is_enabled",
    ),
    "job init": ("jobs::init_writes_a_file_that_can_be_pushed",),
    "job push": (
        "conformance::the_life_of_a_job", "jobs::what_is_not_there_or_not_yours",
        "jobs::teardown_of_a_protected_cluster_is_refused",
    ),
    "job list": ("conformance::the_life_of_a_job",),
    "job info": ("conformance::the_life_of_a_job", "jobs::what_is_not_there_or_not_yours"),
    "job cancel": ("jobs::cancel", "jobs::what_is_not_there_or_not_yours", "jobs::cancel"),
    "job delete": ("conformance::the_life_of_a_job", "jobs::what_is_not_there_or_not_yours", "jobs::cancel"),
    "job listen": ("conformance::the_life_of_a_job", "jobs::what_is_not_there_or_not_yours", "jobs::a_job_that_fails"),
    "job pull": ("conformance::the_life_of_a_job", "jobs::what_is_not_there_or_not_yours"),
    "ssh": (
        "instances::from_a_key_to_a_shell_and_back", "clusters::wrong_ids",
        "instances::a_stopped_machine_cannot_be_entered",
    ),
    "me": ("account::me",),
    "me sshkey add": ("account::ssh_keys", "account::what_is_refused"),
    "me sshkey list": ("account::ssh_keys",),
    "me sshkey remove": ("account::ssh_keys", "account::what_is_refused"),
    "me preferences": ("account::preferences_are_elsewhere",),
}  # fmt: skip


def verify_proofs(client: StockClient, request):
    """A fixture's body that lends the client to a test, which must then have shown what `PROOFS` says that it shows."""
    yield client
    if not request.node.stash[FAILED]:
        missing = claimed_proofs(request.module.__name__, request.node.originalname) - client.shown
        assert not missing, f"{request.node.name} is said to show this of the stock client, and did not: {missing}"


def claimed_proofs(module: str, name: str) -> set[tuple[str, str]]:
    """What a test is said to show."""
    shown = set()
    for command, (works, *refused) in PROOFS.items():
        shown |= {(command, "works")} if proof_location(works) == (module, name) else set()
        shown |= {(command, "refused")} if (module, name) in map(proof_location, refused) else set()
    return shown


def proof_location(proof: str) -> tuple[str, str]:
    """The module and the name of a test."""
    module, name = proof.split("::")
    return MODULES[module], f"test_{name}"
