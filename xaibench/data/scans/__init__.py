"""Scans by X-rays: CT of lungs and of the pancreas, and luggage."""
