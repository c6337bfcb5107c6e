"""Find out what a node does, gently, and say what that means for who loads from it.

Nodes differ in what the interface leaves open, and some lose rows. `probe` sends the questions, at
most `MOST_REQUESTS` and at a slow pace, and leaves a node alone that refuses, bans or falls silent;
`trials` is what is tried, and `checks` says what that means, each for itself: what can't be found
out is unknown, with the reason, and the rest goes on.
"""
