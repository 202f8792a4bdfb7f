"""What all parts stand on: vocabulary, registry, messages, checks, files, and where and how things are computed."""
