"""OTBoard: the leaderboard for methods that decide when a reasoning model stops thinking."""
