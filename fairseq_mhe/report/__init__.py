"""What finished runs say: the table, pictures, published numbers, significance."""
