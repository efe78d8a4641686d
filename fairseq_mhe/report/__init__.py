"""Reports on finished runs: tables, pictures, published numbers, significance."""
