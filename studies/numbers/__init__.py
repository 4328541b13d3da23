"""Section 4.2 and appendix C.4 of the paper: are language models random number generators?"""
