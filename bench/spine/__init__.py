"""The spine: API calls beside bare web servers."""
