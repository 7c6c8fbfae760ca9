"""The hub: repositories, files and known heads. The entry is fetch."""
