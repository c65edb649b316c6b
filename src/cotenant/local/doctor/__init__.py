"""What is wrong on a machine, and what can be done about it.

`examination`, `places` and `system` look and change nothing, the checks decide (pure), `repair` acts, and
`report` ties them together: a finding counts if two looks agree on it, since jobs start, end and are resized
meanwhile.
"""
