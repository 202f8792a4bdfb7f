"""Where and how things are computed: devices, memory, modes, global state."""
