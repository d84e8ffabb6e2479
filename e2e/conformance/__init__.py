"""What any engine must do for stock clients. docs/operating/conformance.md says how to point it at one."""
