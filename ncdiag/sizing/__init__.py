"""What a model needs: weights, KV cache, layout."""
