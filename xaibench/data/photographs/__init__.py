"""Sets of photographs and X-rays whose important pixels people have marked, a file each."""
