"""Schema of the run folder: the files, their names, and their columns with types.

The runner writes by this schema; the report and the Hub read by it. It is the only definition of the files.
"""
