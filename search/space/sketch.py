"""Sketches: open traces derived by rules (Ansor, OSDI 2020, section 4.1)."""

from schedule.open_trace import OpenTrace

Sketch = OpenTrace
