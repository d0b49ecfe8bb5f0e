"""The zoo: trained policies that come with rlcli, and the table of `docs/zoo.md`."""
