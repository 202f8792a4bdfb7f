"""Audits: which explanations can be trusted for one network, on images of its user."""

from xaibench.auditing.api import audit
from xaibench.auditing.page import Audit

__all__ = ["Audit", "audit"]
