from dadmm.__main__ import main_of

main = main_of("run", __name__)
