"""One file for each contender: builds its loader for a task. Importing one imports its packages."""
