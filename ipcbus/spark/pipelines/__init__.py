"""What is commonly asked of recorded traffic, as DataFrame in and DataFrame out."""
