"""The input of Open XDMoD's shredders."""
