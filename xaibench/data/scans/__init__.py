"""Sets of CT scans whose important pixels people have marked."""
