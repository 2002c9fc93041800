"""What is shown of the domain: one typed row for each thing and the queries that fill it. Knows no web framework."""
