"""Sketches: the open schedules that rules derive (Ansor, OSDI 2020, section 4.1)."""

from schedule.open_trace import OpenTrace

Sketch = OpenTrace
