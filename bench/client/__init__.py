"""How long the client takes: to start, and to ask an engine on the same machine."""
