"""Play on the device: environments in JAX, whole populations at once.

The modules in reading order:

    dynamics  what an environment on the device is
    sizes     how many are played at once
    rollout   the loop: slots that are filled from a queue of episodes
    task      `DeviceTask`, which tasks on the device are made of
"""
