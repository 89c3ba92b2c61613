"""The report of a network as one page: what is known of it, the pictures, the HTML."""
