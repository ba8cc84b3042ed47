new EventSource("events").onmessage = (event) => {
  document.getElementById("status").innerHTML = event.data;
};
