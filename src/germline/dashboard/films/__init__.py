"""Individuals at play, for many who watch. The dashboard itself never imports JAX.

pool        a few players for all, kept warm and bounded
supervisor  the thread that looks after one player
messages    what players are asked, what they answer, and how a film is written down
player      the program that decodes and plays, a process of its own
pictures    pictures as small files
reel        a film while it is made, and who follows it
"""
