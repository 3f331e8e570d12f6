"""The Grafana dashboards of the chart, as code."""
