"""The model: masks, attention, the decoder and its heads, decoding."""
