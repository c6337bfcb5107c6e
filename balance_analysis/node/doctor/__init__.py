"""Find out what a node does, gently, and say what that means for who loads from it.

Nodes differ in what the interface leaves open, and some lose rows. Each finding is looked for by
itself: what can't be found out is told as unknown, with the reason, and the rest goes on. At most
`MOST_REQUESTS` are sent, at a slow pace, each for a few rows. A node that refuses, bans or falls
silent is left alone.
"""
