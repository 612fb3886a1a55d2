"""`make dist`: builds what a release consists of, and uses it as users do.

`interpreters` finds the Pythons of this machine, `build` makes wheel and sdist, `environments`
installs the wheel, `smoke` runs it; `constraints` and `licences` are about its dependencies.
`suite` runs the tests on other versions of Python.
"""
