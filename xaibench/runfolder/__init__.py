"""What a run leaves in its folder: every file, its name, its columns and what they hold.

The runner writes by this schema; the report and the Hub read by it. Nothing of it is said a second time.
"""
