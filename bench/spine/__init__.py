"""The spine: calls of the API beside bare web servers."""
