"""The SVG charts of all reports: elements, colours, and one module for every kind of chart."""
