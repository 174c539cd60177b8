"""Pages and charts, HTML and SVG as text, for reports, studies, comparisons, notebooks and the explorer."""
