"""Progress messages during a run."""


def step(name: str, part, *arguments):
    """Announces one part, because a quarter of an hour without output looks like a hang."""
    print(f"bench: {name} …", flush=True)
    return part(*arguments)
