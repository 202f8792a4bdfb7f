"""What all sets on disk share: lists of images, classes, splits, downloads, archives, indexes."""
