"""Play on the host: environments that are stepped by the processor, such as emulators.

The modules in reading order:

    lanes     what a task on the host is made of: lanes, and the eyes of policies
    lockstep  one individual at a time, its episodes side by side in lanes
    arena     beside an accelerator: many individuals at once, each in a place of its own
    seats     the players of an arena on the device
    crew      the processes of an arena, one per core
    hand      the program of such a process, and what it is told
"""
