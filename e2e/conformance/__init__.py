"""What every engine must do for stock clients. docs/operating/conformance.md explains how to test another engine."""
