"""Two builds of Tarn in turns: what a change costs."""
