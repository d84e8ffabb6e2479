"""What a person sees while figures are taken."""


def step(name: str, part, *arguments):
    """One part, announced, because a silent quarter of an hour looks like a hang."""
    print(f"bench: {name} …", flush=True)
    return part(*arguments)
