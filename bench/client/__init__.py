"""How long the client takes to start and to call an engine on the same host."""
