function whole = structure(varargin)
% A structure of the given variables by their names, as PMTK3 has it.
whole = struct();
for k = 1:nargin
    whole.(inputname(k)) = varargin{k};
end
end
